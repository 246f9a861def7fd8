"""Asks running servers over MCP and from inside their sandboxes, to check and to verify."""
