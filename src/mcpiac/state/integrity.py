"""What must hold in every state. Checked after each load and before each write.

1. The lineage is 32 hex digits, the serial not negative, the parent '' or the SHA-256 of a snapshot.
2. Sandbox ids are unique, and so are create keys.
3. A sandbox's owner marker is ``<lineage>/<server>/<key>``, with this state's lineage and its own key.
4. Every server points to a recorded sandbox.
5. In one sandbox no two servers have the same port.
6. Variables are shell names, and unique.
7. No URL has a query, a fragment or credentials: a token is nowhere in a state.
8. Open entries have different numbers; an open create has a key that no record has yet, unless its id was found.
9. Where a sandbox is recorded, the provider instance is too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from mcpiac.model.record import State

_LINEAGE = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"([0-9a-f]{64})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://[^?#@]+")


def broken(state: State) -> list[str]:
    """Every rule that does not hold, as sentences that name what breaks it."""
    return [f"rule {number}: {what}" for number, what in _broken(state)]


def _broken(state: State) -> Iterator[tuple[int, str]]:
    if not _LINEAGE.fullmatch(state.lineage):
        yield 1, "the lineage is not 32 hex digits"
    if state.serial < 0:
        yield 1, "the serial is negative"
    if not _DIGEST.fullmatch(state.parent):
        yield 1, "the parent is not a SHA-256"
    yield from _sandboxes(state)
    yield from _servers(state)
    yield from _open(state)


def _sandboxes(state: State) -> Iterator[tuple[int, str]]:
    for what, values in (("id", "id"), ("create key", "key")):
        counts = Counter(getattr(box, values) for box in state.sandboxes.values())
        for value, count in counts.items():
            if count > 1:
                yield 2, f"{count} sandboxes have the {what} {value}"
    for key, box in state.sandboxes.items():
        parts = box.owner.split("/")
        if len(parts) != 3 or parts[0] != state.lineage or parts[2] != box.key:
            yield 3, f"sandbox {key} has the owner marker {box.owner}"
    if state.sandboxes and state.instance is None:
        yield 9, "sandboxes are recorded without the provider instance that they are of"


def _servers(state: State) -> Iterator[tuple[int, str]]:
    ports: dict[tuple[str, int], str] = {}
    variables: dict[str, str] = {}
    for name, server in state.servers.items():
        if server.sandbox not in state.sandboxes:
            yield 4, f"server {name} points to sandbox {server.sandbox}, which is not recorded"
        other = ports.setdefault((server.sandbox, server.port), name)
        if other != name:
            yield 5, f"servers {other} and {name} both have port {server.port} of sandbox {server.sandbox}"
        if not _VARIABLE.fullmatch(server.variable):
            yield 6, f"server {name} has the variable {server.variable!r}"
        other = variables.setdefault(server.variable, name)
        if other != name:
            yield 6, f"servers {other} and {name} both have the variable {server.variable}"
        if server.hosted is not None and not _URL.fullmatch(server.hosted.url):
            yield 7, f"the URL of server {name} holds more than an address"


def _open(state: State) -> Iterator[tuple[int, str]]:
    numbers = Counter(entry.number for entry in state.open)
    for number, count in numbers.items():
        if count > 1:
            yield 8, f"{count} open entries have the number {number}"
    keys = {box.key: box.id for box in state.sandboxes.values()}
    for entry in state.open:
        if entry.action.verb != "create":
            continue
        if not entry.action.key:
            yield 8, f"the open create {entry.number} has no key"
        elif entry.action.key in keys and entry.found != keys[entry.action.key]:
            yield 8, f"the open create {entry.number} has the key of a recorded sandbox"
