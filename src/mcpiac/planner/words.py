"""Values as people read them: in a plan's fields and beside its verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from mcpiac.model.spec import ServerSpec, Size

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def duration(seconds: int | None) -> str:
    """Exact, in the largest unit that fits: ``8h``, ``90s``; ``none`` for no limit."""
    if seconds is None:
        return "none"
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def idle(minutes: int | None) -> str:
    """``15 min``, or ``off``."""
    return "off" if not minutes else f"{minutes} min"


def ttl(seconds: int | None) -> str:
    """How a plan names a time to live."""
    return "no ttl" if seconds is None else f"ttl {duration(seconds)}"


def package(view: Mapping[str, Any] | None) -> str | None:
    """``npm:name 1.0`` from the recorded view of a package."""
    if view is None:
        return None
    return f"{package_name(view)} {view['version']}"


def package_name(view: Mapping[str, Any]) -> str:
    """Registry, name and extras, without the version."""
    extras = f"[{','.join(view['extras'])}]" if view["extras"] else ""
    return f"{view['registry']}:{view['name']}{extras}"


def bridge(view: Mapping[str, Any] | None) -> str:
    """A bridge from its recorded view or its pin."""
    if view is None or view["name"] is None:
        return "the default"
    return f"{view['name']} {view['version']}" if view["version"] else str(view["name"])


def egress(view: Mapping[str, Any]) -> str:
    """``none``, ``all``, or the destinations."""
    if view["kind"] != "list":
        return str(view["kind"])
    return ", ".join(
        ":".join([rule["host"], *(["/".join(map(str, rule["ports"]))] if rule["ports"] else [])])
        for rule in view["rules"]
    )


def file(view: Mapping[str, Any] | None) -> str | None:
    """A file from its recorded view: what tells two contents apart, never the content."""
    if view is None:
        return None
    if "secret" in view:
        return f"secret {view['secret']}, mode {view['mode']}"
    return f"{count(view['bytes'], 'byte')}, sha256 {view['sha256'][:12]}, mode {view['mode']}"


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def names(items: Iterable[str], most: int = 5) -> str:
    """A list for a sentence, cut with a count when long."""
    items = list(items)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def secrets(items: Iterable[str]) -> str:
    """``no secret``, ``secret A``, ``secrets A, B``."""
    items = list(items)
    if not items:
        return "no secret"
    return f"{'secret' if len(items) == 1 else 'secrets'} {names(items)}"


def program(spec: ServerSpec) -> str:
    """What the server runs, without its arguments."""
    return str(spec.package) if spec.package else f"command {(spec.command or ('?',))[0]}"


def created(spec: ServerSpec) -> str:
    """What a create makes."""
    parts = [
        spec.size,
        "none of your environment",
        secrets(spec.secrets),
        ttl(spec.ttl),
        f"egress {spec.egress.kind}",
    ]
    return " · ".join(parts)


def known_size(size: str | None) -> bool:
    """Whether a size that a list carries is one that a stack can name."""
    return size in get_args(Size)


def hosted(port: int, access: str) -> str:
    """How a hosted port is named."""
    return f"port {port}, {access}"
