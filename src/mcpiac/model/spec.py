"""The effective desired state of one server: every key present, defaults filled in.

Absent, null, ``{}`` and the default have become the same value by the time these exist; the planner compares
nothing else. Values are plain and JSON-ready, so a saved plan carries them whole. Secrets appear by reference
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Registry = Literal["npm", "pypi"]
Size = Literal["small", "default", "large", "xlarge"]
Transport = Literal["stdio", "http"]
Bind = Literal["loopback", "any"]
Access = Literal["private", "public"]
BridgeName = Literal["mcpiac", "supergateway", "npm:mcp-proxy", "pypi:mcp-proxy"]

GUEST_ROOTS = ("/home/user", "/tmp")
"""Guest paths lie under one of these."""


@dataclass(frozen=True, slots=True)
class Package:
    """An exact package of a registry. ``extras`` only for PyPI, normalised and sorted."""

    registry: Registry
    name: str
    version: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.registry}:{self.name}{extras} {self.version}"


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file in the guest: its content (``utf8`` text, or base64 of bytes) or the secret that it holds.

    ``mode`` is octal text such as ``"0644"``. ``origin`` names the host file of a ``from:``, for messages.
    """

    content: str | None = None
    encoding: Literal["utf8", "base64"] = "utf8"
    secret: str | None = None
    mode: str = "0644"
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret comes from (``env:NAME``, ``file:PATH``…), and the user's own version number of it."""

    source: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Bridge:
    """What turns stdio into HTTP. ``version`` None: the one that this mcpiac pins (recorded at set-up)."""

    name: BridgeName
    version: str | None = None


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One reachable destination; ``ports`` empty means any port that the host's scheme implies (443)."""

    host: str
    ports: tuple[int, ...] = ()
    private: bool = False


@dataclass(frozen=True, slots=True)
class Egress:
    """``none``, ``all``, or ``list`` with its rules."""

    kind: Literal["none", "all", "list"] = "none"
    rules: tuple[EgressRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder in the guest (local provider only)."""

    host: str
    mode: Literal["ro", "rw"] = "ro"


@dataclass(frozen=True, slots=True)
class Build:
    """What a package build may do: run install scripts, and reach which hosts."""

    scripts: bool = False
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Rules about change itself. ``ignore`` names spec fields whose change is not acted on."""

    prevent_destroy: bool = False
    ignore: tuple[str, ...] = ()
    moved_from: str | None = None
    on_expiry: Literal["leave", "resume"] = "leave"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the long steps may take, in seconds."""

    create: int = 300
    setup: int = 600
    check: int = 60


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server as wanted. Exactly one of ``package`` and ``command`` is set.

    Units: ``ttl`` seconds until auto-stop or None; ``idle`` minutes until auto-pause or None (off).
    ``sandbox`` names a shared sandbox, None means one of its own. ``port`` None: chosen at plan time, then
    recorded and never renumbered.
    """

    package: Package | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileSpec] = field(default_factory=dict)
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)
    size: Size = "small"
    ttl: int | None = None
    idle: int | None = 15
    transport: Transport = "stdio"
    bind: Bind = "loopback"
    port: int | None = None
    path: str = "/mcp"
    access: Access = "private"
    hosted: bool = True
    bridge: Bridge | None = None
    egress: Egress = field(default_factory=Egress)
    mounts: Mapping[str, Mount] = field(default_factory=dict)
    sandbox: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    disabled: bool = False
    tools: Literal["pin", "warn", "ignore"] = "warn"
    secrets_at_rest: Literal["disk", "memory"] = "disk"
    allow_plain: tuple[str, ...] = ()
    build: Build = field(default_factory=Build)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack file, read. ``digest`` is SHA-256 over the effective content (not over comments or layout)."""

    name: str
    provider: str
    servers: Mapping[str, ServerSpec]
    file: str
    digest: str
    origins: Mapping[str, Any] = field(default_factory=dict)
    """``server`` or ``server.key`` → Origin, for diagnostics of later rooms; not compared."""
