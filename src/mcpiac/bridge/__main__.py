"""`python -m mcpiac.bridge`, and the first file of the zipapp's package."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
