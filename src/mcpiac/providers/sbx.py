"""The service's own program ``sbx``: the two things that its API does not offer, the idle delay and a new token.

Docker has a program of the same name: it is asked who it is before its first use.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping

from mcpiac.model.outcome import ProviderError
from mcpiac.providers.redact import redact

SECONDS = 60.0
_PASSED = (
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "SANDBOXER_API_KEY",
    "SANDBOXER_TOKEN",
    "SANDBOXER_API_URL",
    "SANDBOXER_ORG",
)


class Sbx:
    """``sbx`` on the PATH of ``environ``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._checked = False
        self._program = find(environ)

    async def idle(self, id: str, minutes: int | None) -> None:
        """``sbx idle ID MINUTES``; 0 switches auto-pause off."""
        await self._call("idle", id, str(minutes or 0))

    async def _call(self, *words: str) -> None:
        if self._program is None:
            raise _lacks("the service's program `sbx` is not on the PATH")
        if not self._checked:
            status, said = await self._run("--help")
            if status != 0 or "sandboxer" not in said.lower():
                raise _lacks(f"{self._program} is another program of that name (Docker has one)")
            self._checked = True
        status, said = await self._run(*words)
        if status != 0:
            raise ProviderError("rejected", f"sbx {words[0]} exited with {status}", output=redact(said)[-2000:])

    async def _run(self, *words: str) -> tuple[int, str]:
        """Exit status, and both outputs."""
        assert self._program is not None
        process = await asyncio.create_subprocess_exec(
            self._program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={name: self._environ[name] for name in _PASSED if name in self._environ},
        )
        try:
            async with asyncio.timeout(SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ProviderError("in_doubt", f"sbx {words[0]} did not end within {SECONDS:g} s") from None
        return process.returncode or 0, said.decode("utf-8", "replace")


def find(environ: Mapping[str, str]) -> str | None:
    """Where a program of that name lies; whose it is, is not known before it was asked."""
    return shutil.which("sbx", path=environ.get("PATH"))


def _lacks(why: str) -> ProviderError:
    return ProviderError(
        "rejected",
        f"the idle delay cannot be set: {why}",
        code="sbx-missing",
        hint="install the service's command line, or remove `idle` from the stack",
    )
