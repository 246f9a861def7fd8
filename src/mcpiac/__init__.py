"""mcpiac: MCP servers as code, one sandbox per server."""
