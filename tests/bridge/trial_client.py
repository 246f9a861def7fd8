"""One official Python SDK (2.x or 1.x, whichever this interpreter has) against one URL, for the trial.

`trial_client.py URL SECONDS MODE`: connects, calls echo, and does both once more. Prints one JSON line:
what became of the first and of the second round.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from types import SimpleNamespace

logging.disable(logging.CRITICAL)
sdk = SimpleNamespace()
TEXT = "h\u00e9llo \u2713"


def _leaf(exc: BaseException) -> BaseException:
    while getattr(exc, "exceptions", None):
        exc = exc.exceptions[0]
    return exc


async def _two(url: str, mode: str) -> str:
    async with sdk.Client(url, mode=mode) as client:
        result = await client.call_tool("echo", {"text": TEXT})
        return result.content[0].text


async def _one(url: str) -> str:
    async with sdk.streamablehttp_client(url) as (read, write, _), sdk.ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool("echo", {"text": TEXT})
        return result.content[0].text


async def _round(url: str, seconds: float, mode: str) -> str:
    got: list[str] = []

    async def work() -> None:
        got.append(await (_one(url) if mode == "v1" else _two(url, mode)))

    try:
        await asyncio.wait_for(work(), seconds)
    except TimeoutError:
        return "ok" if got else "hang"
    except BaseException as exc:
        if got:
            return "ok" if got[0].startswith(TEXT) else "wrong"
        leaf = _leaf(exc)
        return f"error {type(leaf).__name__}: {str(leaf)[:160]}"
    return "ok" if got[0].startswith(TEXT) else "wrong"


async def main() -> None:
    url, seconds, mode = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    global sdk  # loaded before the clock runs
    if mode == "v1":
        import mcp
        from mcp.client.streamable_http import streamablehttp_client

        sdk = SimpleNamespace(ClientSession=mcp.ClientSession, streamablehttp_client=streamablehttp_client)
    else:
        from mcp.client.client import Client

        sdk = SimpleNamespace(Client=Client)
    rounds = [await _round(url, seconds, mode), await _round(url, seconds, mode)]
    print(json.dumps(rounds), flush=True)


asyncio.run(main())
