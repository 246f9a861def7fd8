"""The nouns of mcpiac and the ports between its rooms: frozen values, no behaviour that asks anything."""
