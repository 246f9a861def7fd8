"""YAML text becomes a Stack: read with positions, checked against the schema, references resolved."""
