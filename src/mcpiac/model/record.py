"""What was done, as the state keeps it: sandboxes and servers apart, so that several servers can share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpiac.model.action import Entry

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Instance:
    """Which provider the records speak of: never compare ids of two instances.

    ``id``: local: the daemon's id, made at its first start; sandboxer: URL + account or organisation.
    """

    provider: str
    id: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A secret's trace: ``HMAC-SHA256(key, lineage, address, NAME, value)`` in hex, and which key made it."""

    key_id: str
    mac: str
    version: int | None = None


def service_name(key: str) -> str:
    """What the server of this sandbox key is called inside: the name that it had when the sandbox was made. A move
    does not reach into a guest, so what was set up there under the old name must be found under it again."""
    return key.partition(".")[0]


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """One sandbox that exists, or is being made. ``key`` is the idempotency key of its create.

    ``size``, ``ttl``, ``idle``, ``egress`` are the inputs last sent with success. ``created_at`` is ISO 8601 UTC.
    ``stopped`` is True after a stop of ours (``disabled``). ``secrets`` are the fingerprints of the environment
    that it was created or resumed with. ``instance`` is set only while a stack moves to another provider: the one
    that this sandbox is of, where it is not ``State.instance``.
    """

    id: str
    key: str
    owner: str
    created_at: str
    name: str = ""
    size: str = "small"
    ttl: int | None = None
    idle: int | None = None
    egress: Any = "none"
    secrets: Mapping[str, Fingerprint] = field(default_factory=dict)
    stopped: bool = False
    tainted: str | None = None
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class HostedRecord:
    """A port that we host. ``url`` carries no token, ever."""

    port: int
    url: str
    access: str
    localhost: bool
    title: str = ""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """One server as last applied.

    ``sandbox`` is the key in ``State.sandboxes``. ``spec`` is the recorded view of the effective spec
    (``mcpiac.model.codec.recorded_view``): no file contents, no secrets. ``inputs`` maps a verb to the digest of
    the inputs of its last *successful* run. ``tainted`` says why the last exec or check failed.
    ``variable`` is the prefix of ``<VARIABLE>_MCP_AUTH``: chosen once, never changed. ``setup`` holds what the
    set-up resolved and reported: bridge and its version, set-up version, package facts.
    """

    sandbox: str
    spec: Mapping[str, Any]
    variable: str
    port: int
    hosted: HostedRecord | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    tainted: str | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """What it is called inside its guest."""
        return service_name(self.sandbox)

    @property
    def endpoint(self) -> str | None:
        """Where a client speaks MCP to it: the hosted URL with the server's path, without token."""
        return self.hosted.url + str(self.spec.get("path") or "/mcp") if self.hosted is not None else None


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The saved plan that was last begun on this state, and which of its actions are done."""

    id: str
    done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The state of one stack: the snapshot with the journal replayed over it.

    ``parent`` is the SHA-256 of the snapshot that this one replaced ('' for the first). ``open`` are journal
    entries that were begun and never ended: in doubt.
    """

    stack: str
    lineage: str
    serial: int = 0
    parent: str = ""
    version: int = FORMAT_VERSION
    instance: Instance | None = None
    sandboxes: Mapping[str, SandboxRecord] = field(default_factory=dict)
    servers: Mapping[str, ServerRecord] = field(default_factory=dict)
    open: tuple[Entry, ...] = ()
    plan: AppliedPlan | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What an ended action changes in the state: whole records replaced, or removed where None.

    An action touches one sandbox and the servers in it, so applying an effect never costs more for a larger fleet.
    """

    sandboxes: Mapping[str, SandboxRecord | None] = field(default_factory=dict)
    servers: Mapping[str, ServerRecord | None] = field(default_factory=dict)
    instance: Instance | None = None
