"""A value that cannot be printed by accident."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """Holds a secret text; ``repr``, ``str``, ``format`` and pickling never show it. ``reveal`` does."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself: only at the moment when it is sent or written where it belongs."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(••••)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never serialised")
