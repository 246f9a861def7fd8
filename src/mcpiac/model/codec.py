"""Values ↔ plain JSON-ready data, in one place: the recorded view of a spec, and digests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from mcpiac.model.spec import FileSpec, ServerSpec

_PLAIN = frozenset({str, int, bool, float, type(None)})
_NAMES: dict[type, tuple[str, ...] | None] = {}


def _names(kind: type) -> tuple[str, ...] | None:
    if kind not in _NAMES:
        _NAMES[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None
    return _NAMES[kind]


def plain(value: Any) -> Any:
    """A dataclass, mapping or tuple as JSON-ready data, keys in declaration order."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    names = _names(kind)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v) for v in value)
    return value


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON-ready value in its canonical form: sorted keys, no spaces, UTF-8."""
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_bytes(file: FileSpec) -> bytes:
    """The bytes of a file that is declared by content (not by secret)."""
    content = file.content or ""
    return base64.b64decode(content) if file.encoding == "base64" else content.encode("utf-8")


def file_view(file: FileSpec) -> dict[str, Any]:
    """A file as it is recorded: the digest and size of its content in place of the content."""
    if file.secret is not None:
        return {"secret": file.secret, "mode": file.mode}
    data = file_bytes(file)
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "mode": file.mode}


def recorded_view(spec: ServerSpec) -> dict[str, Any]:
    """The effective spec as the state keeps it and the planner compares it: complete, no contents, no secrets.

    To be read only: views of equal values share what is inside.
    """
    view: dict[str, Any] = {}
    for name in _names(ServerSpec) or ():
        value = getattr(spec, name)
        view[name] = _shared(value) if name in _SHARED else None if name == "files" else plain(value)
    view["files"] = {path: file_view(f) for path, f in spec.files.items()}
    return view


_SHARED = frozenset({"egress", "build", "lifecycle", "timeouts"})
"""Nested, hashable, and in a large fleet nearly always at their defaults."""


@lru_cache(maxsize=1024)
def _shared(value: Hashable) -> Any:
    return plain(value)
