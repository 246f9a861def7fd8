"""Hosted ports: a URL for a port of a sandbox, and its token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from mcpiac import wire
from mcpiac.model.live import HostedPort
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import Hosted
from mcpiac.model.secret import Secret
from mcpiac.providers.api import segment
from mcpiac.providers.core import Core
from mcpiac.providers.redact import split_token

_host = TypeAdapter(wire.HostAnswer)
_hosts = TypeAdapter(wire.HostedPage)
_any = TypeAdapter(dict[str, Any])


class Hosting(Core):
    """The calls under ``/sandboxes/{id}/host``."""

    async def host(self, id: str, port: int, *, access: str, localhost: bool, title: str) -> Hosted:
        """Host a port. The same sandbox and port give the same URL and token."""
        body = wire.HostRequest(port=port, public=access == "public", localhost=localhost, title=title).body()

        async def act() -> Hosted:
            answer = await self._api.call(
                _host,
                "POST",
                f"/sandboxes/{segment(id)}/host",
                operation="write",
                what=f"host port {port} of sandbox {id}",
                json=body,
            )
            return _hosted(answer)

        async def look() -> Hosted | None:
            found = (await self.hosted(id)).get(port)
            wanted = (access, localhost, title)
            is_so = found is not None and (found.port.access, found.port.localhost, found.port.title) == wanted
            return found if is_so else None

        return await self._settled(act, look)

    async def hosted(self, id: str) -> Mapping[int, Hosted]:
        """The hosted ports with their tokens."""
        answer = await self._api.call(
            _hosts,
            "GET",
            f"/sandboxes/{segment(id)}/host",
            operation="get",
            what=f"list the hosted ports of sandbox {id}",
        )
        return {item.port: _hosted(item) for item in answer.ports}

    async def hide(self, id: str, port: int) -> None:
        """Take a URL down; hidden already is success."""

        async def act() -> bool:
            try:
                await self._api.call(
                    _any,
                    "DELETE",
                    f"/sandboxes/{segment(id)}/host",
                    operation="write",
                    what=f"hide port {port} of sandbox {id}",
                    params={"port": port},
                )
            except ProviderError as fault:
                if fault.kind != "not_found":
                    raise
            return True

        async def look() -> bool | None:
            return None if port in await self.hosted(id) else True

        await self._settled(act, look)


def hosted_port(item: wire.HostedPortItem | wire.HostAnswer) -> tuple[HostedPort, Secret | None]:
    url, token = split_token(item.url)
    return HostedPort(item.port, url, item.access, item.localhost, item.title or ""), token


def _hosted(item: wire.HostedPortItem | wire.HostAnswer) -> Hosted:
    return Hosted(*hosted_port(item))
