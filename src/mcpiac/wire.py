"""The sandbox API v1: its messages, codes and states, shared by the providers and the embedded backend.

Shapes and names are those of the service's published SDK (`sandboxer-sdk` 0.1.1 on PyPI), whose own models must parse
every answer (`tests/contract`). What the embedded backend
adds is marked *extension*: a client that does not know it loses nothing. Models ignore unknown keys, since the
service may add some. Times are ISO 8601 UTC text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_PREFIX = "/api/v1"
PROTOCOL = 1
"""Of the extensions, not of the API: client and daemon of different versions agree by it."""

OWNER_VARIABLE = "MCPIAC_OWNER"
HEADER_IDEMPOTENCY = "Idempotency-Key"
HEADER_CONFIRM_DELETE = "X-Sandboxer-Confirm-Delete"
HEADER_ORG = "X-Sandboxer-Org"
HEADER_REQUEST_ID = "X-Request-Id"
COOKIE = "__sbx_auth"

RESERVED_ENV = frozenset(
    {
        "SANDBOXER_TOKEN",
        "SANDBOXER_API_URL",
        "AGENT_ID",
        "PRODUCT_MODE",
        "ENVIRONMENT_ID",
        "SANDBOXER_ID",
        "SERVICE_PREVIEW_TOKEN",
        "SANDBOXER_CLI_TOKEN",
    }
)
ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
ENV_MAX_COUNT = 100
ENV_MAX_BYTES = 64 * 1024
LIST_MAX = 100
SIZES = ("small", "default", "large", "xlarge")

SandboxState = Literal[
    "init",
    "provisioning",
    "provisioned",
    "cloning",
    "ready",
    "idle",
    "running",
    "archiving",
    "archived",
    "error",
    "cancelled",
]
USABLE_STATES = frozenset({"ready", "idle", "running"})


class Message(BaseModel):
    """Camel case on the wire, snake case here."""

    # defer_build: a command pays for the messages that it exchanges, not for all
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, defer_build=True
    )

    def body(self) -> dict[str, Any]:
        """The JSON body: only the fields that were set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Answer(Message):
    """Every success says ``ok`` and its ``type``; an answer's body holds all fields, nulls too."""

    ok: bool = True
    type: str

    def body(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


class HostedPortItem(Message):
    """A hosted port. ``url`` carries ``?_token=`` unless public; in the sandbox list (extension) never."""

    port: int
    url: str
    is_protected: bool = True
    access: Literal["private", "public"] = "private"
    localhost: bool = False
    title: str | None = None


class Sandbox(Message):
    """One sandbox as listed and got."""

    id: str
    name: str | None = None
    state: str
    error: str | None = None
    health: str | None = None
    health_reason: str | None = None
    type: str | None = None
    vcpu: int | None = None
    memory_gb: int | None = Field(default=None, alias="memoryGB")
    created_at: str | None = None
    updated_at: str | None = None
    archive_after: str | None = None
    """When its TTL ends; None: no auto-stop."""
    no_env: bool | None = None
    created_by_id: str | None = None
    memory_restored: bool | None = None
    setup_status: str | None = None
    # extensions
    owner: str | None = None
    hosted: tuple[HostedPortItem, ...] | None = None
    idle_minutes: int | None = None
    """0 = off."""
    idle_in_seconds: int | None = None
    paused_at: str | None = None
    expired: bool | None = None
    services: dict[str, ServiceItem] | None = None


class ServiceItem(Message):
    """Extension: a service of a sandbox. ``state``: starting, running, backoff, failed, stopped."""

    state: str
    pid: int | None = None
    restarts: int = 0
    last_exit: str | None = None
    since: str | None = None
    last_lines: tuple[str, ...] = ()


class PageInfo(Message):
    next_cursor: str | None
    has_more: bool
    limit: int


class SandboxPage(Answer):
    """``GET /sandboxes?limit=&cursor=&state=``."""

    type: str = "sandbox.list"
    sandboxes: tuple[Sandbox, ...]
    page_info: PageInfo


class SandboxAnswer(Answer):
    """Of a get and of a patch."""

    type: str = "sandbox.info"
    sandbox: Sandbox


class ActionAnswer(Answer):
    """Of a stop (``status``: archiving, archived) and of a resume."""

    type: str = "sandbox.action"
    id: str
    status: str
    sandbox: Sandbox | None = None


class CreateRequest(Message):
    """``POST /sandboxes`` with header ``Idempotency-Key``. ``ttlSeconds`` null: no auto-stop.

    Extensions: ``egress`` (what it may reach), ``secretsAtRest``.
    """

    type: str = "default"
    ttl_seconds: int | None = 3600
    env: dict[str, str] | None = None
    environment: str | None = None
    no_env: bool = False
    snapshots: bool | None = None
    monitoring: bool | None = None
    fail_fast: bool | None = None
    setup_script: str | None = None
    org: str | None = None
    egress: Any | None = None
    secrets_at_rest: str | None = None


class CreateAnswer(Answer):
    """``status``: provisioning; ready when the key finds a sandbox that is past it."""

    type: str = "sandbox.created"
    status: str
    ttl_seconds: int | None = None
    sandbox: Sandbox


class UpdateRequest(Message):
    """``PATCH /sandboxes/{id}``: only what is set is changed. Extensions: ``idleMinutes`` (0 = off), ``egress``."""

    name: str | None = None
    ttl_seconds: int | None = None
    subdomain: str | None = None
    idle_minutes: int | None = None
    egress: Any | None = None


class ResumeRequest(Message):
    """``POST …/resume``. ``env`` replaces the sandbox's environment; absent: keeps it."""

    type: str | None = None
    env: dict[str, str] | None = None
    ttl_seconds: int | None = None
    no_env: bool | None = None
    fail_fast: bool | None = None


class StopRequest(Message):
    force: bool | None = None


class CommandRequest(Message):
    """``POST …/commands``. ``cwd`` is relative to the work directory (/home/user)."""

    command: str
    cwd: str | None = None
    timeout_seconds: int = 30
    detached: bool = False
    stream: bool = False
    env: dict[str, str] | None = None


class CommandAnswer(Answer):
    """Of a synchronous command. ``success``: it exited with 0."""

    type: str = "command.finished"
    success: bool = True
    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False


class DetachedAnswer(Answer):
    """``processId`` is a number; ``startedAt`` ISO 8601."""

    type: str = "command.started"
    success: bool = True
    process_id: int
    pid: int
    command: str
    started_at: str
    log_path: str | None = None


class ProcessStatus(Answer):
    """``GET …/commands/{processId}?stdoutOffset=&stderrOffset=`` (bytes). ``status``: running, exited, lost (the
    guest forgot it). ``more``: read again at once, from ``stdoutNextOffset`` and ``stderrNextOffset``."""

    type: str = "command.status"
    success: bool = True
    process_id: int
    pid: int | None = None
    status: str
    running: bool
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_offset: int = 0
    stderr_offset: int = 0
    stdout_next_offset: int | None = None
    stderr_next_offset: int | None = None
    more: bool = False


class StoppedAnswer(Answer):
    """``DELETE …/commands/{processId}``. ``signaled`` False: it had ended."""

    type: str = "command.stopped"
    process_id: int
    running: bool = False
    signaled: bool
    command: dict[str, Any] | None = None


class CommandFrame(Message):
    """A line of a streamed command: ``started``, ``stdout``, ``stderr``, then ``exit`` or ``error``."""

    type: str
    data: str | None = None
    exit_code: int | None = None
    timed_out: bool | None = None
    message: str | None = None
    pid: int | None = None


class FileWriteRequest(Message):
    path: str
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"


class FileWriteAnswer(Answer):
    type: str = "file.written"
    success: bool = True
    path: str
    encoding: str
    size: int


class FileReadAnswer(Answer):
    """``GET …/files?path=&encoding=``."""

    type: str = "file.read"
    success: bool = True
    path: str
    encoding: str
    size: int
    content: str


class HostRequest(Message):
    """``POST …/host``: the same sandbox and port give the same URL and token."""

    port: int
    public: bool = False
    localhost: bool = False
    title: str | None = None


class HostAnswer(Answer):
    """Of a host call: the fields of ``HostedPortItem`` beside ``ok`` and ``type``."""

    type: str = "sandbox.host"
    success: bool = True
    port: int
    url: str
    is_protected: bool = True
    access: Literal["private", "public"] = "private"
    localhost: bool = False
    title: str | None = None


class HostedPage(Answer):
    """``GET …/host``. The SDK leaves the name of the list open."""

    type: str = "sandbox.hosts"
    ports: tuple[HostedPortItem, ...] = ()


class DoneAnswer(Answer):
    """A success that has nothing to tell: hide."""

    type: str = "sandbox.hidden"


class DeletionItem(Message):
    """``status``: pending, processing, blocked, completed."""

    id: str
    kind: str = "sandbox"
    target_id: str
    reason: str = "explicit"
    status: str
    stage: str | None = None
    attempt_count: int = 1
    requested_at: str
    completed_at: str | None = None


class DeletionAnswer(Answer):
    """``DELETE /sandboxes/{id}`` and ``GET /deletion-operations/{id}``. The sandbox has left the list by then."""

    type: str = "sandbox.deleting"
    operation: DeletionItem


class StartLimits(Message):
    per_minute: int | None = None
    per_hour: int | None = None
    per_day: int | None = None


class StartWindow(Message):
    limit: int | None = None
    used: int | None = None
    remaining: int | None = None


class Starts(Message):
    """What is left of the rolling windows: create, fork and resume each count as one start."""

    unlimited: bool | None = None
    minute: StartWindow | None = None
    hour: StartWindow | None = None
    day: StartWindow | None = None


class LimitsAnswer(Answer):
    type: str = "limits"
    can_start: bool = True
    start_blocked_reason: str | None = None
    billing_status: str = "active"
    active_sandboxes: int
    max_active_sandboxes: int
    start_limits: StartLimits | None = None
    starts: Starts | None = None


class User(Message):
    id: str | None = None
    login: str | None = None


class MeAnswer(Answer):
    """``GET /me``: whose key it is."""

    type: str = "user.info"
    user: User


class PackageItem(Message):
    """Extension. An exact package: registry ``npm`` or ``pypi``."""

    registry: str
    name: str
    version: str
    extras: tuple[str, ...] = ()


class InstallRequest(Message):
    """Extension: ``PUT …/packages``: exactly these are mounted in the sandbox from now on.

    The answer is NDJSON of ``InstallFrame``: ``progress`` lines, then ``installed`` or ``error``. Repeating it is
    free. A changed set restarts the sandbox's processes (its disk, ports and tokens stay).
    """

    packages: tuple[PackageItem, ...]
    scripts: bool = False
    hosts: tuple[str, ...] = ()
    """What install scripts may reach, each ``host[:port]``; nothing else is reachable."""
    settings: dict[str, str] | None = None
    """The client's registry, proxy and CA settings (``install_settings``): the daemon's environment is empty."""


class InstalledItem(Message):
    package: PackageItem
    path: str
    entry: tuple[str, ...]
    integrity: str = ""
    env: dict[str, str] = Field(default_factory=dict)


class InstallFrame(Message):
    type: Literal["progress", "installed", "error"]
    text: str | None = None
    installed: tuple[InstalledItem, ...] | None = None
    error: ErrorDetail | None = None


class LogItem(Message):
    """Extension: a line of ``GET …/logs?service=&tail=&follow=`` (NDJSON)."""

    at: str
    stream: str
    text: str


class InstanceAnswer(Answer):
    """Extension: ``GET /instance``. ``id`` is made at the daemon's first start and never changes."""

    type: str = "instance"
    id: str
    protocol: int
    version: str
    pid: int | None = None


class ErrorDetail(Message):
    code: str
    message: str
    status: int = 0
    details: dict[str, Any] | None = None


class ErrorEnvelope(Message):
    """Every error. Some endpoints of the service answer ``{"error": "code", "message": "…"}`` instead."""

    ok: bool = False
    type: str = "sandbox.error"
    status: int
    code: str
    message: str
    request_id: str
    error: ErrorDetail


_SETTINGS = frozenset(
    """HOME XDG_CONFIG_HOME XDG_CONFIG_DIRS NETRC NPM_TOKEN NODE_AUTH_TOKEN
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
    SSL_CERT_FILE SSL_CERT_DIR SSL_CLIENT_CERT REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_CERT PIP_CLIENT_CERT PIP_PROXY
    PIP_TRUSTED_HOST PIP_CONFIG_FILE
    UV_DEFAULT_INDEX UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_INDEX_STRATEGY UV_INSECURE_HOST
    UV_SYSTEM_CERTS UV_NATIVE_TLS UV_KEYRING_PROVIDER UV_CONFIG_FILE UV_OFFLINE""".split()  # noqa: SIM905
)
_NPM_SETTINGS = frozenset(
    """registry userconfig globalconfig ca cafile cert key proxy https_proxy noproxy strict_ssl always_auth
    fetch_retries fetch_timeout maxsockets offline prefer_offline replace_registry_host""".split()  # noqa: SIM905
)
_SETTINGS_MAX_BYTES = 64 * 1024


def install_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what says how npm and PyPI are reached here: registries, proxies, certificates, logins.

    Nothing else of it is ever sent. The daemon applies the same filter, so no other variable gets further.
    """
    kept: dict[str, str] = {}
    for name, value in environ.items():
        npm = name[len("npm_config_") :] if name.lower().startswith("npm_config_") else ""
        index = name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))
        if name in _SETTINGS or index or npm.lower() in _NPM_SETTINGS or npm.startswith(("//", "@")):
            kept[name] = value
    while sum(len(name) + len(value) for name, value in kept.items()) > _SETTINGS_MAX_BYTES:
        kept.pop(max(kept, key=lambda name: len(kept[name])))
    return kept
