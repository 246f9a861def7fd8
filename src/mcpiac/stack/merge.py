"""Nulls go, defaults come in: what every server holds in the end, still with the positions of its keys."""

from __future__ import annotations

from typing import Any

from mcpiac.stack.compose import Map

Keys = dict[str, frozenset[str]]
"""Which keys a mapping may have, by its name; names that are missing take any key."""


def without_nulls(source: Map, known: frozenset[str] | None) -> Map:
    """The mapping without its null keys. A null under an *unknown* key stays, so that it is still refused."""
    if None not in source.values():
        return source
    made = source.emptied()
    for key, value in source.items():
        if value is not None or (known is not None and key not in known):
            made[key] = value
    return made


def merged(server: Any, defaults: Map | None, keys: frozenset[str], inner: Keys) -> Any:
    """A server over the defaults: mappings merge key by key and the server wins, everything else is replaced.

    A key set to null drops what the defaults give it. What is no mapping comes back as it is.
    """
    if server.__class__ is not Map:
        return server
    if not defaults and not _has_null(server):
        return server
    made = server.emptied({**defaults.at, **server.at} if defaults else None)
    if defaults:
        made.update(defaults)
    for key, value in server.items():
        if value is None and key in keys:
            made.pop(key, None)
        elif value.__class__ is Map:
            below = defaults.get(key) if defaults else None
            if isinstance(below, Map):
                joined = value.emptied({**below.at, **value.at})
                joined.update(below)
                joined.update(value)
                value = joined
            made[key] = _tidy(value, key, inner)
        else:
            made[key] = value
    return made


def tidied(defaults: Map, keys: frozenset[str], inner: Keys) -> Map:
    """The defaults themselves, without nulls."""
    made = merged(defaults, None, keys, inner)
    return made if isinstance(made, Map) else defaults


def _has_null(server: Map) -> bool:
    for value in server.values():
        if value is None:
            return True
        if value.__class__ is Map and (None in value.values() or _nested_null(value)):
            return True
    return False


def _nested_null(value: Map) -> bool:
    return any(v.__class__ is Map and None in v.values() for v in value.values())


def _tidy(value: Map, key: str, inner: Keys) -> Map:
    made = without_nulls(value, inner.get(key))
    entry = inner.get(f"{key}.*")
    if entry is not None and _nested_null(made):
        copied = made.emptied()
        for name, held in made.items():
            copied[name] = without_nulls(held, entry) if held.__class__ is Map else held
        made = copied
    return made
