"""Claude Code: ``.mcp.json`` of a project, or ``mcpServers`` of ``~/.claude.json``.

``type`` is required; ``${V}`` in a header is replaced from the environment, an unset one stays as it is written
(docs.claude.com, "Connect Claude Code to tools via MCP").
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcpiac.clients.entry import Client, Entry

COOKIE = "__sbx_auth"


def render(entries: Sequence[Entry]) -> str:
    """The JSON to paste."""
    return json.dumps({"mcpServers": {e.name: server(e) for e in entries}}, indent=2)


def server(entry: Entry) -> dict[str, Any]:
    """One server's object, as ``claude mcp add-json NAME`` takes it too."""
    value: dict[str, Any] = {"type": "http", "url": entry.url}
    if entry.variable is not None:
        value["headers"] = {"Cookie": f"{COOKIE}=${{{entry.variable}}}"}
    return value


CLIENT = Client("claude-code", "Save it as .mcp.json in a project, or paste it into ~/.claude.json.", render)
