"""The command line: options before `--`, the server's command after it."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, Union

from .limits import Limits

_MB = 1 << 20
Value = Union[int, float]  # noqa: UP007 - evaluated, and 3.9 has no |


class Option(NamedTuple):
    name: str
    placeholder: str
    text: str
    limit: str = ""  # the field of Limits that it sets
    scale: float = 1


OPTIONS = (
    Option("--host", "ADDRESS", "loopback address to listen on (127.0.0.1)"),
    Option("--port", "N", "port to listen on; 0: any free one (8000)"),
    Option("--path", "PATH", "path of the endpoint (/mcp)"),
    Option("--health-path", "PATH", "path of the health page (/healthz)"),
    Option("--allow-host", "NAME", "a further Host (and host of an Origin) to serve; may be repeated"),
    Option("--allow-origin", "ORIGIN", "a further Origin to serve; may be repeated"),
    Option("--max-body", "MB", "largest request body (64)", "body", _MB),
    Option("--max-line", "MB", "longest line of the server's stdout (64)", "line", _MB),
    Option("--max-sessions", "N", "sessions at a time; one more ends the idlest (64)", "sessions"),
    Option("--idle-timeout", "S", "seconds until an unused session or child is ended (1800)", "idle"),
    Option("--call-timeout", "S", "seconds a call may take without progress; 0: no limit (3600)", "call"),
    Option("--start-timeout", "S", "seconds the server may take to answer initialize (60)", "start"),
    Option("--probe-timeout", "S", "seconds the server may take to answer server/discover (20)", "probe"),
    Option("--client-timeout", "S", "seconds until a client that reads nothing is dropped (60)", "client"),
    Option("--keepalive", "S", "seconds between comments on a silent stream (15)", "keepalive"),
    Option("--queue", "N", "events kept for a slow client before notifications are dropped (1024)", "queue"),
    Option("--grace", "S", "seconds for what is pending at TERM (10)", "grace"),
)
_BY_NAME = {option.name: option for option in OPTIONS}


class Usage(Exception):
    """What is wrong with the command line."""


class Settings(NamedTuple):
    command: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    path: str = "/mcp"
    health_path: str = "/healthz"
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    limits: Limits = Limits()


def help_text() -> str:
    lines = ["usage: mcpiac-bridge [options] -- COMMAND [ARG ...]", ""]
    lines += ["Serves the MCP server COMMAND, which speaks on stdio, over Streamable HTTP on loopback.", ""]
    lines += [f"  {o.name + ' ' + o.placeholder:<26} {o.text}" for o in OPTIONS]
    lines += [f"  {'--version':<26} print the version", f"  {'--help':<26} print this"]
    return "\n".join(lines)


def parse(argv: list[str]) -> Settings:
    """Raises Usage."""
    given: dict[str, list[str]] = {}
    at = 0
    while at < len(argv) and argv[at] != "--":
        name, equals, value = argv[at].partition("=")
        at += 1
        if name not in _BY_NAME:
            raise Usage(f"unknown option {name} (the server's command goes after --)")
        if not equals:
            if at >= len(argv) or argv[at] == "--":
                raise Usage(f"{name} needs a value")
            value = argv[at]
            at += 1
        given.setdefault(name, []).append(value)
    command = tuple(argv[at + 1 :])
    if not command:
        raise Usage("no server: give its command after --")
    changed: dict[str, Value] = {}
    for name, values in given.items():
        option = _BY_NAME[name]
        if option.limit:
            number = _number(name, values[-1]) * option.scale
            whole = isinstance(getattr(Limits(), option.limit), int)
            changed[option.limit] = int(number) if whole else number
    path, health = _path("--path", given), _path("--health-path", given)
    settings = Settings(
        command=command,
        host=_loopback(given.get("--host", ["127.0.0.1"])[-1]),
        port=_port(given.get("--port", ["8000"])[-1]),
        path=path or "/mcp",
        health_path=health or "/healthz",
        allow_hosts=tuple(given.get("--allow-host", ())),
        allow_origins=tuple(given.get("--allow-origin", ())),
        limits=Limits()._replace(**changed),  # type: ignore[arg-type]
    )
    if settings.path == settings.health_path:
        raise Usage("--path and --health-path are the same")
    return settings


def _path(name: str, given: dict[str, list[str]]) -> str | None:
    if name not in given:
        return None
    path = given[name][-1]
    if not path.startswith("/") or "?" in path or (len(path) > 1 and path.endswith("/")):
        raise Usage(f"{name} must begin with / and end without")
    return path


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    least = 0 if name in ("--call-timeout", "--grace") else 0.001
    if not least <= number < 1e9:
        raise Usage(f"{name}: {value} is not a number that fits")
    return number


def _port(value: str) -> int:
    if not value.isdigit() or int(value) > 65535:
        raise Usage(f"--port: {value} is no port")
    return int(value)


def _loopback(value: str) -> str:
    host = "127.0.0.1" if value == "localhost" else value.strip("[]")
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise Usage(f"--host: {value} is no loopback address; the bridge listens on nothing else")
