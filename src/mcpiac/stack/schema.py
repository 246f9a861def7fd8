"""The shape of a stack file: every key with its check, its default and its meaning; and the JSON Schema for editors.

Here is shape and each value's own grammar; rules over several keys are in ``rules.py``. Nulls are taken out before
(``merge.py``): a key is there with a value, or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypedDict

from pydantic_core import SchemaValidator

from mcpiac.model.spec import Access, Bind, BridgeName, SecretRef, Size, Transport
from mcpiac.stack import grammar
from mcpiac.stack.grammar import Bad
from mcpiac.stack.keys import (
    TRUTH,
    Json,
    Key,
    Part,
    Value,
    choice,
    definition,
    listed,
    mapped,
    part,
    read,
    text,
    told,
    whole,
)
from mcpiac.stack.package import NPM_NAME, PYPI_NAME, parse_name

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

File = TypedDict("File", {"content": str | None, "from": str | None, "secret": str | None, "mode": str})


class BridgeKeys(TypedDict):
    """``bridge``, checked. ``name`` None: not named."""

    name: BridgeName | None
    version: str | None


class BuildKeys(TypedDict):
    """``build``, checked."""

    scripts: bool
    hosts: list[str]


class LifecycleKeys(TypedDict):
    """``lifecycle``, checked."""

    prevent_destroy: bool
    ignore: list[str]
    moved_from: str | None
    on_expiry: Any


class TimeoutsKeys(TypedDict):
    """``timeouts``, checked; seconds."""

    create: int
    setup: int
    check: int


class Server(TypedDict):
    """A server, checked, every key there. ``package`` and ``version`` are texts whose grammar holds."""

    package: str | None
    version: str | None
    secrets: Mapping[str, SecretRef]
    command: list[str] | None
    args: list[str]
    env: dict[str, str]
    files: dict[str, File]
    size: Size
    ttl: int | None
    idle: int | None
    transport: Transport
    bind: Bind
    port: int | None
    path: str
    access: Access
    hosted: bool
    bridge: BridgeKeys | None
    labels: dict[str, str]
    title: str
    disabled: bool
    tools: Any
    allow_plain: list[str]
    build: BuildKeys
    lifecycle: LifecycleKeys
    timeouts: TimeoutsKeys


class StackKeys(TypedDict):
    """A whole file, checked."""

    stack: str
    provider: str
    servers: dict[str, Server]


def _later(what: str, allowed: tuple[Any, ...], json: Json, hint: str) -> Value:
    """A value that comes with a later version. ``allowed``: what may stand there now."""

    def check(value: Any) -> Any:
        if value in allowed:
            return value
        raise Bad("later-version", f"{what} comes with a later version of mcpiac", hint)

    return read(check, json)


def _words(key: str, now: tuple[str, ...], later: str) -> Value:
    """A choice of which one word comes with a later version."""

    def check(value: Any) -> Any:
        if value in now:
            return value
        if value == later:
            raise Bad("later-version", f"`{key}: {later}` comes with a later version of mcpiac", f"write: {now[0]}")
        raise Bad("bad-value", f"this is no value of `{key}`", f"one of: {', '.join((*now, later))}")

    return read(check, {"enum": [*now, later]})


_NAME: Json = {"pattern": f"^{grammar.NAME}$", "maxLength": grammar.NAME_LONGEST}
_VARIABLE: Json = {"pattern": f"^{grammar.VARIABLE}$"}
_PACKAGE = rf"^(npm:{NPM_NAME}|pypi:{PYPI_NAME}(\[[^\]]*\])?)$"
_SOURCE: Json = {"type": "string", "pattern": f"^(env:{grammar.VARIABLE}|file:.+)$"}
_DURATION: Json = {"type": "string", "pattern": "^[0-9]{1,9}[smhd]$"}
_TTL: Json = {"anyOf": [{"type": "integer", "minimum": 60, "maximum": 31536000}, _DURATION, {"const": "none"}]}
_IDLE: Json = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10080}, {"const": "off"}]}
_TIMEOUT: Json = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 86400}, _DURATION]}
_EGRESS: Json = {"anyOf": [{"enum": ["none", "all"]}, {"type": "array"}, {"type": "object", "maxProperties": 0}]}
_NOTHING: tuple[Any, ...] = ({}, [])
_OWN_SANDBOX = "leave it out: each server has a sandbox of its own"

_SERVER_NAME = text(lambda v: grammar.check_name(v, "server"), **_NAME)
_ARGUMENT = text(grammar.check_argument)
_ENV_NAME = text(lambda v: grammar.check_variable(v, "env"), **_VARIABLE)
_SECRET_NAME = text(lambda v: grammar.check_variable(v, "secrets"), **_VARIABLE)
_GUEST_PATH = text(grammar.check_guest_path, pattern="^(/home/user|/tmp)/.+$")
_LABEL = text(lambda v: grammar.check_line(v, "label", 255), maxLength=255)
_SECONDS = read(grammar.parse_timeout, _TIMEOUT)

FILE = Part(
    "File",
    "a file",
    "A file in the guest: exactly one of content, from, secret.",
    {
        "content": Key(text(), "The text itself, byte for byte; at most 1 MiB."),
        "from": Key(text(), "A file of the project, from its root; at most 1 MiB, not of .git, not of state/."),
        "secret": Key(text(), "The NAME of one of this server's secrets, written inside the guest."),
        "mode": Key(text(grammar.parse_mode, pattern="^0?[0-7]{3}$"), "Permissions, octal, in quotes.", "0644"),
    },
)
SECRET = Part(
    "Secret",
    "a secret",
    "A secret's source with a version of the user's own.",
    {
        "from": Key(text(grammar.check_source, pattern=_SOURCE["pattern"]), "env:NAME or file:PATH.", required=True),
        "version": Key(whole(0), "Raise it to have the secret sent again."),
    },
)
BRIDGE = Part(
    "Bridge",
    "`bridge`",
    "What turns stdio into HTTP.",
    {
        "name": Key(
            choice("mcpiac", "supergateway", "npm:mcp-proxy", "pypi:mcp-proxy"), "Which one.", written="mcpiac"
        ),
        "version": Key(text(), "Its exact version; left out: the one that this mcpiac knows. Not for mcpiac itself."),
    },
)
BUILD = Part(
    "Build",
    "`build`",
    "What the package's build may do.",
    {
        "scripts": Key(TRUTH, "Run the install scripts of npm packages, in a sandbox without secrets.", False),
        "hosts": Key(
            listed(text(grammar.parse_host)), "With scripts: the names, host[:port], that they may reach (443).", []
        ),
    },
)
LIFECYCLE = Part(
    "Lifecycle",
    "`lifecycle`",
    "Rules about change itself.",
    {
        "prevent_destroy": Key(TRUTH, "Refuse any plan that deletes or replaces this server.", False),
        "ignore": Key(listed(text()), "Keys of this server whose change is not acted on.", []),
        "moved_from": Key(_SERVER_NAME, "The name that this server had before, in this stack."),
        "on_expiry": Key(choice("leave", "resume"), "Once its ttl ended: leave it stopped, or resume it.", "leave"),
    },
)
TIMEOUTS = Part(
    "Timeouts",
    "`timeouts`",
    "How long the long steps may take: 90s, 10m, 1h, or seconds.",
    {
        "create": Key(_SECONDS, "Until the sandbox is usable.", 300),
        "setup": Key(_SECONDS, "Until the server is set up and answers inside.", 600),
        "check": Key(_SECONDS, "Until it answers through its URL.", 60),
    },
)


def _secret() -> Value:
    """A secret: its source as text, or the mapping with a version; a ``SecretRef`` in the end."""
    inner = part(SECRET)
    check = told(lambda v: SecretRef(grammar.check_source(v if isinstance(v, str) else "")))["function"]

    def either(value: Any, mapping: Callable[[Any], Any]) -> SecretRef:
        if not isinstance(value, dict):
            return check(value)  # type: ignore[no-any-return]
        held = mapping(value)
        return SecretRef(held["from"], held["version"])

    core = {"type": "function-wrap", "function": {"type": "no-info", "function": either}, "schema": inner.core}
    return Value(core, {"anyOf": [_SOURCE, inner.json]})


_OWN = {
    "package": Key(text(lambda v: parse_name(v) and v, pattern=_PACKAGE), "npm:NAME, or pypi:NAME[extras]."),
    "version": Key(text(), "The package's exact version; in quotes where YAML would read a number."),
    "secrets": Key(mapped(_SECRET_NAME, _secret()), "NAME → where its value comes from: env:NAME or file:PATH.", {}),
}
_COMMON = {
    "command": Key(
        listed(_ARGUMENT, 1), "An argv instead of a package: a program in the guest, or one written by `files`."
    ),
    "args": Key(listed(_ARGUMENT), "Arguments; ${secret.NAME} is put in inside the guest, ${port} with http.", []),
    "env": Key(mapped(_ENV_NAME, _ARGUMENT), "Variables that are no secrets; shown in plans.", {}),
    "files": Key(mapped(_GUEST_PATH, part(FILE)), "Guest path → file, written before the server starts.", {}),
    "size": Key(choice("small", "default", "large", "xlarge"), "How large its sandbox is.", "small"),
    "ttl": Key(read(grammar.parse_ttl, _TTL), "Until auto-stop: 90s, 30m, 8h, 2d, seconds, or none.", written="none"),
    "idle": Key(read(grammar.parse_idle, _IDLE), "Minutes without activity until auto-pause, or off.", 15),
    "transport": Key(choice("stdio", "http"), "stdio (behind a bridge), or http (the server's own).", "stdio"),
    "bind": Key(choice("loopback", "any"), "any: the server cannot listen on 127.0.0.1 only.", "loopback"),
    "port": Key(whole(1024, 65535), "Its port in the guest; left out: 8000."),
    "path": Key(text(grammar.check_url_path, pattern="^/", maxLength=200), "Where it answers MCP.", "/mcp"),
    "access": Key(choice("private", "public"), "private (with a token), or public (without).", "private"),
    "hosted": Key(TRUTH, "Whether its port has a URL.", True),
    "bridge": Key(part(BRIDGE), "What turns stdio into HTTP."),
    "egress": Key(
        _later("`egress` other than `none`", ("none", *_NOTHING), _EGRESS, "write: none, or leave it out"),
        "What it may reach. Other than none comes with a later version.",
        "none",
    ),
    "mounts": Key(
        _later("`mounts`", _NOTHING, {"type": "object"}, "leave it out; `files` writes single files"),
        "Host folders in the guest. Comes with a later version.",
        {},
    ),
    "sandbox": Key(
        _later("`sandbox`", (), {"type": "string"}, _OWN_SANDBOX),
        "A sandbox shared with others. Comes with a later version.",
    ),
    "labels": Key(mapped(text(grammar.check_label), _LABEL), "For choosing with -l name=value.", {}),
    "title": Key(text(lambda v: grammar.check_line(v, "title", 200), maxLength=200), "What people call it.", ""),
    "disabled": Key(TRUTH, "Hidden and stopped, its disk kept.", False),
    "tools": Key(
        _words("tools", ("warn", "ignore"), "pin"),
        "When its tools change. Nothing is compared yet; pin comes with a later version.",
        "warn",
    ),
    "secrets_at_rest": Key(
        _words("secrets_at_rest", ("disk",), "memory"),
        "Where a sandbox keeps its secrets. memory comes with a later version.",
        "disk",
    ),
    "allow_plain": Key(
        listed(text()),
        "Names in env, args[N] and command[N] that look like secrets and are none, or show one in a process list.",
        [],
    ),
    "build": Key(part(BUILD), BUILD.about, BUILD.empty(), written={}),
    "lifecycle": Key(part(LIFECYCLE), LIFECYCLE.about, LIFECYCLE.empty(), written={}),
    "timeouts": Key(part(TIMEOUTS), "How long the long steps may take.", TIMEOUTS.empty(), written={}),
}
SERVER = Part("Server", "a server", "One MCP server.", {**_OWN, **_COMMON})
DEFAULTS = Part("Defaults", "`defaults`", "What every server has: any key but package, version, secrets.", _COMMON)
STACK = Part(
    "Stack",
    "a stack",
    "One stack: a named set of MCP servers, one sandbox each.",
    {
        "stack": Key(text(lambda v: grammar.check_name(v, "stack"), **_NAME), "The stack's name.", required=True),
        "provider": Key(choice("local", "sandboxer"), "What makes the sandboxes.", required=True),
        "defaults": Key(part(DEFAULTS), "What every server has unless it says otherwise.", {}),
        "servers": Key(mapped(_SERVER_NAME, part(SERVER)), "Name → server.", {}),
        "sandboxes": Key(
            _later("`sandboxes`", _NOTHING, {"type": "object"}, _OWN_SANDBOX),
            "Sandboxes to share. Comes with a later version.",
            {},
        ),
    },
)
INNER = {"bridge": BRIDGE, "build": BUILD, "lifecycle": LIFECYCLE, "timeouts": TIMEOUTS}
"""Keys of a server that are mappings with known keys."""


@cache
def _validator() -> SchemaValidator:
    return SchemaValidator(part(STACK).core)


def check(tree: Any) -> StackKeys:
    """A tree without nulls as checked keys. Raises pydantic-core's ``ValidationError`` with all that is wrong."""
    checked: StackKeys = _validator().validate_python(tree)
    return checked


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of a stack file, for editors; ``schema/stack.schema.json`` is its text.

    It accepts whatever ``read_stack`` accepts (null is absent), and less than every refusal: rules over several keys
    and the look of secrets are beyond it.
    """
    parts = (SERVER, DEFAULTS, FILE, SECRET, *INNER.values())
    head = {"$schema": SCHEMA_ID, "title": "mcpiac stack"}
    return {**head, **definition(STACK), "$defs": {each.name: definition(each) for each in parts}}
