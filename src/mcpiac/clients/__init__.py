"""A server's URL becomes an entry in an MCP client's configuration, and back."""
