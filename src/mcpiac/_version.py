"""The version, in a file that costs nothing to import; ``pyproject.toml`` names the same (a test says so)."""

VERSION = "0.1.0"
