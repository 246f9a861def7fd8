"""Asks a server that has no URL from inside its own sandbox."""

from __future__ import annotations

import json
import shlex

from mcpiac.executor.step import Step
from mcpiac.model.outcome import ProviderError

PROGRAM = """
import json, sys, urllib.error, urllib.request
url, wait = sys.argv[1], float(sys.argv[2])
asks = [
    ("server/discover", "2026-07-28", {}),
    ("initialize", "2025-06-18", {"protocolVersion": "2025-06-18", "capabilities": {},
     "clientInfo": {"name": "mcpiac", "version": "1"}}),
]
why = ""
for method, version, params in asks:
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": version, "Mcp-Method": method}
    if method == "server/discover":
        params = {"_meta": {"io.modelcontextprotocol/protocolVersion": version,
                            "io.modelcontextprotocol/clientInfo": {"name": "mcpiac", "version": "1"},
                            "io.modelcontextprotocol/clientCapabilities": {}}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=wait) as answer:
            for line in answer:
                text = line.decode("utf-8", "replace").strip()
                text = text[5:].strip() if text.startswith("data:") else text
                if text.startswith("{") and '"result"' in text:
                    print("answers from inside")
                    sys.exit(0)
                why = text[:200] or why
    except (OSError, ValueError) as fault:
        why = str(fault)
print("no answer to an MCP request: " + why, file=sys.stderr)
sys.exit(1)
"""
"""Stands in one line of a guest's shell. MCP 2026-07-28 is asked first, then the older handshake (specification of
each, ``basic/lifecycle`` and ``server/discover``)."""


async def answers_inside(step: Step) -> str:
    """A real MCP request to the server's port on the guest's loopback. Raises ``ProviderError``."""
    payload, provider, id = step.payload, step.provider, step.id
    url = f"http://127.0.0.1:{payload['port']}{payload['path']}"
    words = ["python3", "-I", "-c", PROGRAM, url, json.dumps(payload["timeout"] / 2)]
    result = await step.call(lambda: provider.run(id, shlex.join(words), timeout=payload["timeout"]))
    if result.exit_code != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise ProviderError(
            "rejected",
            lines[-1] if lines else "the server does not answer from inside",
            output="\n".join(lines[-12:]),
        )
    return "answers from inside"
