"""`mcpiac-bridge`: turns one MCP server's stdio into Streamable HTTP on loopback.

A room of its own: it imports nothing else of the product and ships as one file (`build.py`) that
any Python >= 3.9 runs. The protocol core (`hub` and what it imports) is pure: events in, commands
out, time passed in. Sockets, processes and asyncio are in `httpd`, `process`, `supervise` and `run`.
"""
