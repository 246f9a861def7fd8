"""The shape of a stack file, as pydantic models, and the JSON Schema that editors use.

The models check shape and each value's own grammar; rules over several keys are in ``rules.py``. Nulls are taken out
before (``merge.py``): for these models a key is there with a value, or absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from mcpiac.model.spec import Access, Bind, BridgeName, SecretRef, Size, Transport
from mcpiac.stack import grammar
from mcpiac.stack.grammar import Bad
from mcpiac.stack.package import NPM_NAME, PYPI_NAME, parse_name

PROVIDERS = ("local", "sandboxer")
SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

Json = dict[str, Any]


def _told(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A grammar's function as a validator: its ``Bad`` travels in the error's context."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except Bad as bad:
            raise PydanticCustomError("bad", "refused", {"bad": bad}) from None

    return validate


class _Text:
    """Metadata of a text that has a grammar; ``schema`` is what JSON Schema can say of it."""

    def __init__(self, function: Callable[[str], Any], **schema: Any) -> None:
        self.function = _told(function)
        self.schema = {"type": "string", **schema}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.function, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Json:
        return dict(self.schema)


class _Value(_Text):
    """Metadata of a value that is read by one function, whatever its type."""

    def __init__(self, function: Callable[[Any], Any], schema: Json) -> None:
        self.function = _told(function)
        self.schema = schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.function)


class _Source:
    """Metadata of a secret: its source as text, or the mapping with a version."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        check = _told(_source)

        def read(value: Any, mapping: Callable[[Any], Any]) -> Any:
            return mapping(value) if isinstance(value, dict) else check(value)

        return core_schema.no_info_wrap_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Json:
        return {"anyOf": [dict(_SOURCE_SCHEMA), handler(schema["schema"])]}


def _source(value: Any) -> SecretRef:
    return SecretRef(grammar.check_source(value if isinstance(value, str) else ""))


def _later(what: str, allowed: tuple[Any, ...], schema: Json, hint: str) -> _Value:
    """A key whose other values come with a later version. ``allowed``: what it may hold now."""

    def check(value: Any) -> Any:
        if value in allowed:
            return value
        raise Bad("later-version", f"{what} comes with a later version of mcpiac", hint)

    return _Value(check, schema)


_NAME_SCHEMA: Json = {"pattern": f"^{grammar.NAME}$", "maxLength": grammar.NAME_LONGEST}
_VARIABLE_SCHEMA: Json = {"pattern": f"^{grammar.VARIABLE}$"}
_PACKAGE_PATTERN = rf"^(npm:{NPM_NAME}|pypi:{PYPI_NAME}(\[[^\]]*\])?)$"
_SOURCE_SCHEMA: Json = {"type": "string", "pattern": f"^(env:{grammar.VARIABLE}|file:.+)$"}
_DURATION: Json = {"type": "string", "pattern": "^[0-9]{1,9}[smhd]$"}
_TTL: Json = {"anyOf": [{"type": "integer", "minimum": 60, "maximum": 31536000}, _DURATION, {"const": "none"}]}
_IDLE: Json = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10080}, {"const": "off"}]}
_TIMEOUT: Json = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 86400}, _DURATION]}
_EMPTY: tuple[Any, ...] = ({}, [])

StackName = Annotated[str, _Text(lambda v: grammar.check_name(v, "stack"), **_NAME_SCHEMA)]
ServerName = Annotated[str, _Text(lambda v: grammar.check_name(v, "server"), **_NAME_SCHEMA)]
EnvName = Annotated[str, _Text(lambda v: grammar.check_variable(v, "env"), **_VARIABLE_SCHEMA)]
SecretName = Annotated[str, _Text(lambda v: grammar.check_variable(v, "secrets"), **_VARIABLE_SCHEMA)]
Argument = Annotated[str, _Text(grammar.check_argument)]
PackageName = Annotated[str, _Text(lambda v: parse_name(v) and v, pattern=_PACKAGE_PATTERN)]
SourceText = Annotated[str, _Text(grammar.check_source, pattern=_SOURCE_SCHEMA["pattern"])]
GuestPath = Annotated[str, _Text(grammar.check_guest_path, pattern="^(/home/user|/tmp)/.+$")]
Mode = Annotated[str, _Text(grammar.parse_mode, pattern="^0?[0-7]{3}$")]
UrlPath = Annotated[str, _Text(grammar.check_url_path, pattern="^/", maxLength=200)]
LabelName = Annotated[str, _Text(grammar.check_label)]
LabelValue = Annotated[str, _Text(lambda v: grammar.check_line(v, "label", 255), maxLength=255)]
Title = Annotated[str, _Text(lambda v: grammar.check_line(v, "title", 200), maxLength=200)]
Ttl = Annotated[int | None, _Value(grammar.parse_ttl, _TTL)]
Idle = Annotated[int | None, _Value(grammar.parse_idle, _IDLE)]
Timeout = Annotated[int, _Value(grammar.parse_timeout, _TIMEOUT)]
Hosts = Annotated[
    list[str],
    _later("`build.hosts`", _EMPTY, {"type": "array", "items": {"type": "string"}}, "leave it out"),
]
EgressValue = Annotated[
    Any,
    _later(
        "`egress` other than `none`",
        ("none", *_EMPTY),
        {"anyOf": [{"enum": ["none", "all"]}, {"type": "array"}, {"type": "object", "maxProperties": 0}]},
        "write: none, or leave it out",
    ),
]
MountsValue = Annotated[
    Any, _later("`mounts`", _EMPTY, {"type": "object"}, "leave it out; `files` writes single files")
]
SandboxValue = Annotated[
    str | None, _later("`sandbox`", (), {"type": "string"}, "leave it out: each server has a sandbox of its own")
]
SandboxesValue = Annotated[
    Any, _later("`sandboxes`", _EMPTY, {"type": "object"}, "leave it out: each server has a sandbox of its own")
]


def _choice(what: str, now: tuple[str, ...], later: tuple[str, ...], hint: str) -> _Value:
    def check(value: Any) -> Any:
        if value in now:
            return value
        if value in later:
            raise Bad("later-version", f"`{what}: {value}` comes with a later version of mcpiac", hint)
        raise Bad("bad-value", f"this is no value of `{what}`", f"one of: {', '.join((*now, *later))}")

    return _Value(check, {"enum": [*now, *later]})


Tools = Annotated[Literal["pin", "warn", "ignore"], _choice("tools", ("warn", "ignore"), ("pin",), "write: warn")]
AtRest = Annotated[Literal["disk", "memory"], _choice("secrets_at_rest", ("disk",), ("memory",), "write: disk")]


class Part(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class File(Part):
    """A file in the guest: exactly one of content, from, secret."""

    content: str | None = Field(None, description="The text itself, byte for byte; at most 1 MiB.")
    from_: str | None = Field(
        None, alias="from", description="A file of the project, from its root; at most 1 MiB, not .git, not state/."
    )
    secret: str | None = Field(
        None, description="The NAME of one of this server's secrets, written inside the guest."
    )
    mode: Mode = Field("0644", description="Permissions, octal, in quotes.")


class SecretFrom(Part):
    """A secret's source with a version of the user's own."""

    from_: SourceText = Field(alias="from", description="env:NAME or file:PATH.")
    version: int | None = Field(None, ge=0, description="Raise it to have the secret sent again.")


class BridgePart(Part):
    """What turns stdio into HTTP."""

    name: BridgeName = Field("mcpiac", description="mcpiac, supergateway, npm:mcp-proxy or pypi:mcp-proxy.")
    version: str | None = Field(None, description="Its exact version; left out: the one that this mcpiac knows.")


class BuildPart(Part):
    """What the package's build may do."""

    scripts: bool = Field(False, description="Run the install scripts of npm packages, in a sandbox without secrets.")
    hosts: Hosts = Field([], description="Hosts that a build may reach. Comes with a later version.")


class LifecyclePart(Part):
    """Rules about change itself."""

    prevent_destroy: bool = Field(False, description="Refuse any plan that deletes or replaces this server.")
    ignore: list[str] = Field([], description="Keys of this server whose change is not acted on.")
    moved_from: ServerName | None = Field(None, description="The name that this server had before in this stack.")
    on_expiry: Literal["leave", "resume"] = Field("leave", description="After its ttl ended: leave it, or resume it.")


class TimeoutsPart(Part):
    """How long the long steps may take: 90s, 10m, 1h, or seconds."""

    create: Timeout = Field(300, description="Until the sandbox is usable.")
    setup: Timeout = Field(600, description="Until the server is set up and answers inside.")
    check: Timeout = Field(60, description="Until it answers through its URL.")


class Common(Part):
    """The keys that a server and ``defaults`` share."""

    command: list[Argument] | None = Field(
        None, min_length=1, description="An argv instead of a package: a program in the guest or written by `files`."
    )
    args: list[Argument] = Field(
        [], description="Arguments. ${secret.NAME} is put in inside the guest; ${port} with transport http."
    )
    env: dict[EnvName, Argument] = Field({}, description="Variables that are not secret; shown in plans.")
    files: dict[GuestPath, File] = Field({}, description="Guest path → file, written before the server starts.")
    size: Size = Field("small", description="How large its sandbox is.")
    ttl: Ttl = Field(None, description="Time until auto-stop: 90s, 30m, 8h, 2d, seconds, or none.")
    idle: Idle = Field(15, description="Minutes without activity until auto-pause, or off.")
    transport: Transport = Field("stdio", description="stdio (behind a bridge) or http (the server's own HTTP mode).")
    bind: Bind = Field("loopback", description="any: the server cannot listen on 127.0.0.1 only.")
    port: int | None = Field(None, ge=1024, le=65535, description="Port in the guest; left out: 8000.")
    path: UrlPath = Field("/mcp", description="Where it answers MCP.")
    access: Access = Field("private", description="private (a token) or public (none).")
    hosted: bool = Field(True, description="Whether its port has a URL.")
    bridge: BridgePart | None = Field(None, description="What turns stdio into HTTP.")
    egress: EgressValue = Field("none", description="What it may reach. Other than none comes with a later version.")
    mounts: MountsValue = Field({}, description="Host folders in the guest. Comes with a later version.")
    sandbox: SandboxValue = Field(None, description="A sandbox shared with others. Comes with a later version.")
    labels: dict[LabelName, LabelValue] = Field({}, description="For choosing with -l name=value.")
    title: Title = Field("", description="What people call it.")
    disabled: bool = Field(False, description="Hidden and stopped, its disk kept.")
    tools: Tools = Field("warn", description="When its tools change. Nothing is compared yet; pin comes later.")
    secrets_at_rest: AtRest = Field("disk", description="Where a sandbox keeps its secrets. memory comes later.")
    allow_plain: list[str] = Field(
        [], description="Names in env, args[N] and command[N] that look like secrets and are none."
    )
    build: BuildPart = Field(BuildPart.model_construct(), description="What the package's build may do.")
    lifecycle: LifecyclePart = Field(LifecyclePart.model_construct(), description="Rules about change itself.")
    timeouts: TimeoutsPart = Field(TimeoutsPart.model_construct(), description="How long the long steps may take.")


class Defaults(Common):
    """What every server of the stack has unless it says otherwise: any key but package, version, secrets."""


class Server(Common):
    """One MCP server."""

    package: PackageName | None = Field(None, description="npm:NAME, or pypi:NAME[extras]; with `version`.")
    version: str | None = Field(None, description="Exact, in quotes where YAML would read a number.")
    secrets: dict[SecretName, Annotated[SecretFrom, _Source()]] = Field(
        {}, description="NAME → where its value comes from: env:NAME, file:PATH, or {from, version}."
    )


class StackFile(Part):
    """One stack: a named set of MCP servers, one sandbox each."""

    stack: StackName = Field(description="The stack's name.")
    provider: Literal["local", "sandboxer"] = Field(description="What makes the sandboxes.")
    defaults: Defaults = Field(Defaults.model_construct(), description="For every server of this stack.")
    servers: dict[ServerName, Server] = Field({}, description="Name → server.")
    sandboxes: SandboxesValue = Field({}, description="Sandboxes to share. Comes with a later version.")


def keys_of(part: type[Part]) -> list[str]:
    """The keys of a mapping as they are written in YAML, its own before those that it shares."""
    own = [name for name in part.model_fields if name in part.__annotations__]
    return [part.model_fields[name].alias or name for name in dict.fromkeys((*own, *part.model_fields))]


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of a stack file, for editors; ``schema/stack.schema.json`` is its text.

    It accepts whatever ``read_stack`` accepts (null is absent), and less than every refusal: rules over several keys
    and the look of secrets are beyond it.
    """
    made = StackFile.model_json_schema(by_alias=True)
    for part in (made, *made["$defs"].values()):
        part.pop("title", None)
        required = part.get("required", [])
        for name, key in part.get("properties", {}).items():
            part["properties"][name] = key if name in required else _nullable(_entries(key))
    return {"$schema": SCHEMA_ID, "title": "mcpiac stack", **made}


def _entries(key: Json) -> Json:
    """A mapping of free names: each entry may be null, and a name outside the pattern is refused."""
    made = {name: value for name, value in key.items() if name != "title"}
    if "patternProperties" in made:
        made["patternProperties"] = {name: _nullable(value) for name, value in made["patternProperties"].items()}
        made["additionalProperties"] = False
    elif isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = _nullable(made["additionalProperties"])
    if isinstance(made.get("default"), dict):
        made["default"] = {}
    return made


def _nullable(key: Json) -> Json:
    """The same key, and null beside it: absent and null are the same."""
    if isinstance(key.get("type"), str):
        return {**key, "type": [key["type"], "null"], **({"enum": [*key["enum"], None]} if "enum" in key else {})}
    if "enum" in key:
        return {**key, "enum": [*key["enum"], None]}
    notes = {name: value for name, value in key.items() if name in ("description", "default")}
    own = {name: value for name, value in key.items() if name not in notes}
    choices = own.pop("anyOf", None) or [own]
    return {"anyOf": [*(c for c in choices if c != {"type": "null"}), {"type": "null"}], **notes}
