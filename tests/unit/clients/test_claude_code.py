"""What Claude Code reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcpiac.clients import registry
from mcpiac.clients.entry import Entry
from mcpiac.model.diagnostic import Diagnosed

ENTRIES = [
    Entry("files", "http://127.0.0.1:18431/mcp", "FILES_MCP_AUTH"),
    Entry("open", "https://x-8000.box.example/mcp", None),
]


def test_a_private_server_names_its_variable_and_a_public_one_has_no_header() -> None:
    shown = json.loads(registry.client("claude-code").render(ENTRIES))
    assert shown == {
        "mcpServers": {
            "files": {
                "type": "http",
                "url": "http://127.0.0.1:18431/mcp",
                "headers": {"Cookie": "__sbx_auth=${FILES_MCP_AUTH}"},
            },
            "open": {"type": "http", "url": "https://x-8000.box.example/mcp"},
        }
    }


def test_an_unknown_client_is_told_which_there_are() -> None:
    with pytest.raises(Diagnosed) as caught:
        registry.client("emacs")
    assert "claude-code" in caught.value.diagnostics[0].hint


@pytest.mark.parametrize("name", registry.CLIENTS)
def test_every_client_is_documented(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
    assert f"connect --print {name}`" in page
