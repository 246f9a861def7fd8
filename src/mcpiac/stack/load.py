"""A stack file becomes a Stack, or all that is wrong with it, each with its line."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import ValidationError

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin
from mcpiac.model.spec import ServerSpec, Stack
from mcpiac.stack import build, faults, rules, source
from mcpiac.stack.compose import Composed, Map, compose
from mcpiac.stack.finding import Finding, Spot
from mcpiac.stack.merge import Keys, merged, tidied, without_nulls
from mcpiac.stack.place import Places
from mcpiac.stack.rules import Case
from mcpiac.stack.schema import DEFAULTS, FILE, INNER, SECRET, SERVER, STACK, Server, StackKeys, check

_MOST_SHOWN, _MOST_FOUND = 200, 2000
"""Findings of one file that are shown, and looked into: a generated file says the same thing on every line."""

_MOST_REPEATED = 5_000_000
"""Values that the defaults may become, once each server has them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of one file. ``stack`` is None when there is any error among the diagnostics."""

    stack: Stack | None
    diagnostics: tuple[Diagnostic, ...]
    file: str = ""


def read_stack(path: Path, root: Path) -> Reading:
    """Read one stack file; ``root`` is the project's folder. Never raises for what is in the file.

    No secret is read. The files of ``from:`` are.
    """
    file = source.shown(path, root)
    try:
        text = source.read_text(path, file)
    except Diagnosed as fault:
        return Reading(None, fault.diagnostics, file)
    return read(text, file, root)


def read(text: str, file: str, root: Path) -> Reading:
    """As ``read_stack``, of a text that is there already."""
    with _quiet():
        return _Reader(file, text, root).reading()


@contextmanager
def _quiet() -> Iterator[None]:
    """No cycle collection while a tree is built: nothing in it is a cycle, and looking costs three times the work."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


Broken = Mapping[str, frozenset[str]]
"""Server → keys whose value was refused."""


class Origins(Mapping[str, Origin]):
    """``server`` and ``server.key`` → where it stands: found only when somebody asks, by reading the text again."""

    __slots__ = ("_file", "_found", "_text")

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._found: dict[str, Origin] | None = None

    def _all(self) -> dict[str, Origin]:
        if self._found is None:
            self._found = {}
            root = compose(self._text).root
            servers = root.get("servers") if isinstance(root, Map) else None
            for name, (key, _) in (servers.at if isinstance(servers, Map) else {}).items():
                self._found[name] = self._origin(key)
                server = servers.get(name) if servers else None
                for inner, (inner_key, _) in (server.at if isinstance(server, Map) else {}).items():
                    self._found[f"{name}.{inner}"] = self._origin(inner_key)
        return self._found

    def _origin(self, event: Any) -> Origin:
        return Origin(self._file, event.start_mark.line + 1, event.start_mark.column + 1)

    def __getitem__(self, key: str) -> Origin:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


_SERVER_KEYS, _DEFAULTS_KEYS = frozenset(SERVER.keys), frozenset(DEFAULTS.keys)
_INNER_KEYS: Keys = {name: frozenset(part.keys) for name, part in INNER.items()}
_INNER_KEYS |= {"files.*": frozenset(FILE.keys), "secrets.*": frozenset(SECRET.keys)}


class _Reader:
    """One reading of one text."""

    def __init__(self, file: str, text: str, root: Path) -> None:
        self.file = file
        self.text = text
        self.root = root
        self.findings: list[Finding] = []

    def reading(self) -> Reading:
        composed = compose(self.text)
        tree = composed.root
        if not isinstance(tree, Map):
            return self._no_tree(composed)
        if "stack" not in tree and "servers" not in tree:
            summary = "this is no stack: it has neither `stack` nor `servers`"
            where = Spot(tree.start.start_mark.line, tree.start.start_mark.column)
            finding = Finding("not-a-stack", summary, where, "`mcpiac init` writes a first stack")
            return self._done(None, Places(self.file, self.text, tree, stack=False), [finding])
        self.findings += composed.findings
        own, effective = self._effective(tree)
        places = Places(self.file, self.text, effective, stack=True)
        checked, parts, broken = self._validate(effective, places)
        specs = self._servers(parts, own, broken)
        if any(f.severity == "error" for f in self.findings):
            return self._done(None, places, self.findings)
        name, provider = checked["stack"], checked["provider"]
        digest = build.digest(name, provider, specs)
        stack = Stack(name, provider, specs, self.file, digest, Origins(self.file, self.text))
        return self._done(stack, places, self.findings)

    def _no_tree(self, composed: Composed) -> Reading:
        finding = composed.fault
        looks_like_one = self.text.startswith("stack:") or "\nstack:" in self.text or "\nservers:" in self.text
        if finding is None:
            if composed.empty:
                finding = Finding("empty-file", "the file is empty", Spot(0, 0), "`mcpiac init` writes a first stack")
            else:
                summary = "a stack file is a mapping with the keys `stack`, `provider` and `servers`"
                finding = Finding("not-a-mapping", summary, Spot(0, 0), "`mcpiac init` writes a first stack")
            looks_like_one = False
        return self._done(None, Places(self.file, self.text, None, stack=looks_like_one), [finding])

    def _effective(self, tree: Map) -> tuple[Map | None, Map]:
        """The servers as written, and the whole tree with nulls gone and defaults in every server."""
        top = without_nulls(tree, frozenset(STACK.keys))
        effective = tree.emptied()
        effective.update(top)
        defaults = top.get("defaults")
        tidy = tidied(defaults, _DEFAULTS_KEYS, _INNER_KEYS) if isinstance(defaults, Map) else None
        if tidy is not None:
            effective["defaults"] = tidy
        servers = top.get("servers")
        if not isinstance(servers, Map):
            return None, effective
        common = _common(tidy) if tidy else None
        if common is not None and _size(common) * len(servers) > _MOST_REPEATED:
            summary = f"the defaults, repeated for {len(servers):,} servers, make more than {_MOST_REPEATED:,} values"
            self.findings.append(Finding("defaults-too-large", summary, ("defaults",), "split the stack", on="key"))
            common = None
        made = servers.emptied()
        for name, server in servers.items():
            if server is None:
                server = Map(servers.at[name][1])
            made[name] = merged(server, common, _SERVER_KEYS, _INNER_KEYS)
        effective["servers"] = made
        return servers, effective

    def _validate(self, effective: Map, places: Places) -> tuple[StackKeys, Mapping[str, Server], Broken]:
        """The checked keys, the servers, and which keys each server lost because their shape is wrong."""
        try:
            checked = check(effective)
            return checked, checked["servers"], {}
        except ValidationError as fault:
            errors = fault.errors(include_url=False)
        self.findings += [faults.translate(error, places.written) for error in errors[:_MOST_FOUND]]
        written = effective.get("servers")
        servers = dict(written) if isinstance(written, Map) else {}
        lost: dict[str, set[str]] = {}
        for error in errors:
            path = error["loc"]
            name = str(path[1]) if path[0] == "servers" and len(path) > 1 else ""
            if not isinstance(servers.get(name), dict):
                servers.pop(name, None)
            elif path[2] != "[key]":
                lost.setdefault(name, set()).add(str(path[2]))
                servers[name] = _without(servers[name], path[2:])
        names = {f"s{index}": name for index, name in enumerate(servers)}
        left = {"servers": {short: servers[name] for short, name in names.items()}}
        checked = check({"stack": "unnamed", "provider": "local", **left})
        parts = {names[short]: part for short, part in checked["servers"].items()}
        return checked, parts, {name: frozenset(keys) for name, keys in lost.items()}

    def _servers(self, parts: Mapping[str, Server], own: Map | None, broken: Broken) -> dict[str, ServerSpec]:
        nothing: frozenset[str] = frozenset()
        cases = {
            name: Case(name, own.get(name) if own else None, part, broken.get(name, nothing))
            for name, part in parts.items()
        }
        specs = {}
        for name, case in cases.items():
            found = list(rules.check(case))
            files, unread = build.read_files(case, self.root)
            self.findings += found + unread
            if not any(f.severity == "error" for f in self.findings):
                specs[name] = build.spec(case.part, files)
        self.findings += rules.across(cases)
        return specs

    def _done(self, stack: Stack | None, places: Places, findings: list[Finding]) -> Reading:
        placed = [places.diagnostic(f) for f in findings[:_MOST_FOUND]]
        unique = list(dict.fromkeys(placed))
        unique.sort(key=lambda d: (d.origin.line, d.origin.column) if d.origin else (0, 0))
        if len(unique) > _MOST_SHOWN:
            rest = f"{len(unique) - _MOST_SHOWN}{' or more' if len(findings) > _MOST_FOUND else ''}"
            more = Diagnostic("error", "more-errors", f"and {rest} further findings", origin=Origin(self.file))
            unique = [*unique[:_MOST_SHOWN], more]
        return Reading(stack, tuple(unique), self.file)


def _common(defaults: Map) -> Map:
    """The defaults that reach the servers: a key that cannot stand there is reported once, not for each."""
    made = defaults.emptied()
    made.update({key: value for key, value in defaults.items() if key in _DEFAULTS_KEYS})
    return made


def _size(node: Any) -> int:
    if isinstance(node, dict):
        return 1 + sum(_size(value) for value in node.values())
    return 1 + sum(_size(value) for value in node) if isinstance(node, list) else 1


def _without(server: dict[str, Any], path: tuple[int | str, ...]) -> dict[str, Any]:
    """A server without what is wrong at a path: one entry of a mapping, one item of a list (left empty), or a key."""
    key, held = str(path[0]), server.get(str(path[0]))
    made = dict(server)
    if isinstance(held, dict) and len(path) > 1:
        made[key] = {name: value for name, value in held.items() if name != path[1]}
    elif isinstance(held, list) and len(path) > 1:
        made[key] = ["" if index == path[1] else value for index, value in enumerate(held)]
    else:
        made.pop(key, None)
    return made
