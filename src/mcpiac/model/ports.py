"""The seams of the executor: what it needs from a provider, a journal and a probe, as protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcpiac.model.action import Action, Entry
from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.event import Event
from mcpiac.model.live import Found, HostedPort, LiveView
from mcpiac.model.record import Effect, Instance, SandboxRecord, ServerRecord, State
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress, Package
from mcpiac.model.traits import Traits

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command in the guest ended. Outputs are cut by the provider at its own limit, keeping the end."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Hosted:
    """A hosted port with its token. ``token`` is None for public ports."""

    port: HostedPort
    token: Secret | None


@dataclass(frozen=True, slots=True)
class Installed:
    """A package as it lies in the guest.

    ``path`` its folder, ``entry`` the argv that starts it, ``env`` what that argv needs (PYTHONPATH), ``integrity``
    the registry's hash of the package itself.
    """

    package: Package
    path: str
    entry: tuple[str, ...]
    integrity: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a server's log; ``stream`` is ``stdout``, ``stderr`` or ``system`` (the supervisor's own words)."""

    at: str
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Materials:
    """What is put into guests and comes with this program: the bundled bridge as one file."""

    bridge_program: bytes


class Provider(Protocol):
    """One API call is one outcome; each raises ``ProviderError``. Ids are the provider's own.

    Retries of a single HTTP request that are safe by the wire's rules happen inside; whether an *action* is
    tried again is the executor's business, by the error's kind.
    """

    @property
    def traits(self) -> Traits: ...

    async def instance(self) -> Instance:
        """Which service this is; asked before anything else."""

    async def refresh(self, recorded: Sequence[str]) -> LiveView:
        """All pages of the list, then a get for each recorded id that the list lacked."""

    async def get(self, id: str) -> Found:
        """One sandbox; ``not_found`` when it does not exist."""

    async def create(
        self, *, key: str, size: str, ttl: int | None, env: Mapping[str, Secret], egress: Egress
    ) -> Found:
        """Make a sandbox, or find the one that this key made. ``env`` includes the owner marker."""

    async def wait(self, id: str, *, timeout: float) -> Found:
        """Until it is usable; ``rejected`` when it ended in ``error`` or ``cancelled``."""

    async def rename(self, id: str, name: str) -> None: ...

    async def set_ttl(self, id: str, ttl: int | None) -> None: ...

    async def set_idle(self, id: str, idle: int | None) -> None: ...

    async def set_egress(self, id: str, egress: Egress) -> None: ...

    async def host(self, id: str, port: int, *, access: str, localhost: bool, title: str) -> Hosted: ...

    async def hosted(self, id: str) -> Mapping[int, Hosted]:
        """The hosted ports with their tokens: asked when a token is needed, never kept."""

    async def hide(self, id: str, port: int) -> None: ...

    async def stop(self, id: str, *, timeout: float) -> None:
        """Stop and wait until it is stopped; the disk is kept."""

    async def resume(
        self, id: str, *, env: Mapping[str, Secret] | None, size: str | None, ttl: int | None, timeout: float
    ) -> Found:
        """Start again and wait until usable. ``env`` None keeps the environment that it has."""

    async def delete(self, id: str) -> None:
        """Delete and wait until gone; gone already is success."""

    async def put_file(self, id: str, path: str, content: bytes) -> None: ...

    async def read_file(self, id: str, path: str) -> bytes: ...

    async def install(
        self,
        id: str,
        packages: Sequence[Package],
        *,
        scripts: bool,
        hosts: Sequence[str] = (),
        progress: Callable[[str], None],
    ) -> tuple[Installed, ...]:
        """Have the packages in the guest (only where ``traits.package_store``). With ``scripts`` their install
        scripts run, and reach ``hosts`` (each ``host[:port]``) and nothing else."""

    async def run(
        self,
        id: str,
        command: str,
        *,
        timeout: float,
        progress: Callable[[str], None] | None = None,
        detached: bool = False,
    ) -> CommandResult:
        """Run a shell command to its end. ``detached``: started once, then polled; survives a lost connection."""

    def logs(self, id: str, service: str, *, follow: bool, tail: int) -> AsyncIterator[LogLine]:
        """A server's log, oldest first; reading it wakes nothing."""

    async def limits(self) -> Mapping[str, Any]: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time, handed in: the executor never reads it elsewhere, so a simulated world can turn it."""

    def now(self) -> float:
        """Seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds that only grow: for durations."""

    async def sleep(self, seconds: float) -> None: ...


class JournalFailed(Diagnosed):
    """A line could not be written, or the lock is not ours any more: nothing more may be sent to a provider."""


class Journal(Protocol):
    """The durable trace of a run. What a call returns is done only when the line is on disk, or raises
    ``JournalFailed``. Calls take effect in the order in which they are made, whether or not
    they are awaited one by one; several are made durable together."""

    @property
    def state(self) -> State:
        """The state as of the last durable line."""

    def sandbox(self, key: str) -> SandboxRecord | None:
        """One sandbox's record as of the last durable line."""

    def server(self, name: str) -> ServerRecord | None:
        """One server's record as of the last durable line."""

    def begin(
        self, action: Action, *, plan: str, at: str, takes: int | None = None, instance: Instance | None = None
    ) -> Awaitable[Entry]:
        """Open an entry. ``instance``, given with a create, becomes the state's in the same line. ``takes`` is the
        number of an open entry that this one goes on with: that leaves in the same line (a create sent again)."""

    def progress(self, entry: Entry, *, step: str | None = None, found: str | None = None) -> Awaitable[Entry]:
        """A composite's step, or the id that a create answered."""

    def end(
        self, entry: Entry, *, ok: bool, effect: Effect, note: str = "", plan_done: bool = True
    ) -> Awaitable[None]:
        """Close an entry with what it changes; ``ok`` False for a failure that is known to have ended."""

    async def settle(self) -> None:
        """Wait until everything that was added is on disk, or failed."""


class Probe(Protocol):
    """Asks a running server over MCP through its URL."""

    async def check(
        self, url: str, token: Secret | None, *, public: bool, timeout: float, progress: Callable[[str], None]
    ) -> str:
        """A real MCP request with the token answers and one without is refused (public: the first half).

        Returns a short note such as ``14 tools``; raises ``ProviderError`` when a half fails.
        """
