"""``python -m mcpiac``: the same as the ``mcpiac`` command."""

from mcpiac.cli import entry

entry()
