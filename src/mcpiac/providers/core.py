"""What every call of a provider stands on: the connection, the traits, and how a lost answer is settled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from mcpiac.model.outcome import ProviderError
from mcpiac.model.traits import Traits
from mcpiac.providers.api import Api

T = TypeVar("T")


class Core:
    """One ``Api`` and how its sandboxes differ. Use it as an async context manager, or ``close`` it.

    ``shortest`` and ``longest`` are the waits between two looks, in seconds, while something is awaited.
    """

    def __init__(self, api: Api, traits: Traits, *, shortest: float, longest: float) -> None:
        self._api = api
        self._traits = traits
        self._shortest = shortest
        self._longest = longest

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._api.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._api!r})"

    @property
    def traits(self) -> Traits:
        return self._traits

    @property
    def requests(self) -> int:
        """How many requests were sent so far."""
        return self._api.requests

    async def _settled(self, act: Callable[[], Awaitable[T]], is_so: Callable[[], Awaitable[T | None]]) -> T:
        """A write whose answer was lost: the live state decides whether it happened; it is sent once more if not."""
        try:
            return await act()
        except ProviderError as fault:
            if fault.kind != "in_doubt":
                raise
            found = await is_so()
            return found if found is not None else await act()
