"""The provider ``local``: the embedded daemon, reached over its unix socket like any service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import TypeAdapter

from mcpiac import wire
from mcpiac.model.diagnostic import error
from mcpiac.model.ports import Installed, LogLine
from mcpiac.model.record import Instance
from mcpiac.model.spec import Egress, Package
from mcpiac.model.traits import Traits
from mcpiac.providers.api import LOCAL_PACE, Api
from mcpiac.providers.base import WireProvider
from mcpiac.providers.daemon import Daemon

_instance = TypeAdapter(wire.InstanceAnswer)
_removed = TypeAdapter(dict[str, Any])


class LocalProvider(WireProvider):
    """``daemon`` None: ``api`` reaches a server that somebody else looks after. ``settings`` say how package
    registries are reached here."""

    def __init__(
        self,
        api: Api,
        traits: Traits,
        daemon: Daemon | None = None,
        *,
        start: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(api, traits, shortest=0.02, longest=0.5)
        self._settings = dict(settings or {})
        self._daemon = daemon
        self._start = start

    async def __aenter__(self) -> Self:
        if self._daemon is not None:
            if self._start:
                await self._daemon.ensure()
            elif not self._daemon.listens():
                raise error(
                    "daemon-not-running",
                    "the local daemon does not run",
                    hint="run `mcpiac daemon start`",
                )
        return self

    async def close(self) -> None:
        await super().close()
        if self._daemon is not None:
            self._daemon.close()

    async def _ask_instance(self) -> Instance:
        answer = await self._api.call(
            _instance, "GET", "/instance", operation="get", what="ask the local daemon who it is"
        )
        if answer.protocol != wire.PROTOCOL:
            raise error(
                "daemon-version",
                f"the running daemon is of mcpiac {answer.version} and speaks protocol {answer.protocol}; "
                f"this mcpiac speaks {wire.PROTOCOL}",
                hint="run `mcpiac daemon stop` (sandboxes keep running), then the command again",
            )
        return Instance("local", answer.id)

    def _create_extras(self, egress: Egress) -> dict[str, Any]:
        return {} if egress.kind == "none" else {"egress": _egress(egress)}

    async def set_idle(self, id: str, idle: int | None) -> None:
        minutes = idle or 0
        await self._patch(id, "set the idle delay", {"idleMinutes": minutes}, lambda found: found.idle == minutes)

    async def set_egress(self, id: str, egress: Egress) -> None:
        await super().set_egress(id, egress)
        await self._patch(id, "set the egress", {"egress": _egress(egress)}, lambda _found: False)

    async def install(
        self,
        id: str,
        packages: Sequence[Package],
        *,
        scripts: bool,
        hosts: Sequence[str] = (),
        progress: Callable[[str], None],
    ) -> tuple[Installed, ...]:
        """Exactly these are mounted in the sandbox from now on. A set that changed restarts its processes."""
        return await self._installed(id, packages, scripts, hosts, progress, self._settings)

    async def collect(self) -> list[str]:
        """Remove the stored packages that no sandbox mounts; returns their names."""
        answer = await self._api.call(
            _removed, "POST", "/packages/collect", operation="write", what="remove unused packages"
        )
        return [str(name) for name in answer["removed"]]

    def logs(self, id: str, service: str, *, follow: bool, tail: int) -> AsyncIterator[LogLine]:
        return self._log_lines(id, service, follow, tail)


def connect(traits: Traits, environ: Mapping[str, str], *, start_daemon: bool) -> LocalProvider:
    """The daemon of ``$MCPIAC_HOME``; it is started on entering, and again if it left in between."""
    daemon = Daemon(environ)
    api = Api(
        f"http://mcpiac{wire.API_PREFIX}",
        socket=daemon.socket,
        pace=LOCAL_PACE,
        revive=daemon.ensure if start_daemon else None,
    )
    return LocalProvider(api, traits, daemon, start=start_daemon, settings=wire.install_settings(environ))


def _egress(egress: Egress) -> Any:
    if egress.kind != "list":
        return egress.kind
    return [{"host": r.host, "ports": list(r.ports), "private": r.private} for r in egress.rules]
