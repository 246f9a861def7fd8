"""An answer that is a refusal; the API wraps it into the error envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """``code`` is the API's, or one of ours (``docs/local-backend.md``). ``message`` never holds a secret."""

    def __init__(self, status: int, code: str, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details) if details else None
