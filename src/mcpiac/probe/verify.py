"""Proves on a running fleet that each server is kept apart: its URL, its secrets, its files, its network.

Three looks into each sandbox (``look.py``). The first plants a file of random content and tells, as HMACs under a
key of this run, what the sandbox holds; the second looks there for what the others hold, by the same HMACs; the third
takes the planted file away. No secret is carried into another sandbox, none leaves its own, and none is read from its
source.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import CommandResult
from mcpiac.model.secret import Secret
from mcpiac.probe.check import status_of
from mcpiac.probe.conversation import Conversation, NotMcp, Refused, RpcError, Unavailable

OWN = "own token answers"
NONE = "no token is refused (401)"
OTHER = "another's token is refused (401)"
SECRETS = "sees no secret but its own"
FILES = "cannot read the other's files"
NETWORK = "cannot reach the other's port, nor this machine's"
CHECKS = (OWN, NONE, OTHER, SECRETS, FILES, NETWORK)

ALL_PAIRS = 10
"""Up to so many servers every pair is looked at; above, each has its neighbour in a ring and three others."""
OTHERS = 3
AT_ONCE = 8
HELD_MAX = 4 * 1024 * 1024
"""Characters of one look's answer that are read: a guest wrote it."""

T = TypeVar("T")
Run = Callable[[str], Awaitable[CommandResult]]
Verdict = Literal["ok", "failed", "not-applicable"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One running server. ``url`` None: not hosted; ``token`` None: public. ``secrets`` are its declared names,
    ``files`` its declared guest paths. ``run`` runs a shell command in its sandbox, ``box`` says which that is."""

    name: str
    box: str
    port: int
    run: Run
    url: str | None = None
    token: Secret | None = None
    secrets: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """One check of one server. ``detail`` says what was seen."""

    check: str
    server: str
    verdict: Verdict
    detail: str = ""


@dataclass(slots=True)
class _Look:
    """What one sandbox told, checked for shape: a guest wrote it."""

    environment: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    listens: frozenset[int] = frozenset()
    answered: list[tuple[str, int]] = field(default_factory=list)
    fault: str = ""


async def verify(fleet: Sequence[Subject], *, progress: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Every check of every server, in the order of ``CHECKS``. Wakes what is paused."""
    others = {s.name: tuple(o for o in _others(s, fleet) if o.box != s.box) for s in fleet}
    gate = asyncio.Semaphore(AT_ONCE)
    progress("asks each URL with its own token, with none, and with another's")
    rows = [row for part in await _all(gate, [_urls(s, others[s.name]) for s in fleet]) for row in part]
    progress("looks into each sandbox")
    key = secrets.token_hex(32)
    planted = {s.name: f"/home/user/.mcpiac-verify-{secrets.token_hex(8)}" for s in fleet}
    async with _listeners(len(fleet)) as doors:
        try:
            asked: list[dict[str, Any]] = [
                {"key": key, "canary": planted[s.name], "read": [*s.files, planted[s.name]]} for s in fleet
            ]
            looks = await _all(gate, [_look(s, a) for s, a in zip(fleet, asked, strict=True)])
            held = {s.name: look for s, look in zip(fleet, looks, strict=True)}
            asked = []
            for s, door in zip(fleet, doors, strict=True):
                read = {path for o in others[s.name] for path in held[o.name].files} - s.files
                reach = [("127.0.0.1", door.port), *_targets(others[s.name], held)]
                asked.append({"key": key, "read": sorted(read), "try": reach, "gateway_port": door.port})
            looks = await _all(gate, [_look(s, a) for s, a in zip(fleet, asked, strict=True)])
        finally:
            await _all(gate, [_forget(s, planted[s.name]) for s in fleet])
        for s, door, seen in zip(fleet, doors, looks, strict=True):
            rows += [
                _secrets(s, others[s.name], held, seen),
                _files(s, others[s.name], held, seen),
                _network(s, others[s.name], held, seen, door),
            ]
    place = {check: number for number, check in enumerate(CHECKS)}
    return sorted(rows, key=lambda r: place[r.check])


def _others(subject: Subject, fleet: Sequence[Subject]) -> list[Subject]:
    """Whom a server is held against: all up to ten; above, the next in a ring and three more, spread evenly."""
    if len(fleet) <= ALL_PAIRS:
        return [s for s in fleet if s.name != subject.name]
    at = next(i for i, s in enumerate(fleet) if s.name == subject.name)
    step = max(2, len(fleet) // (OTHERS + 1))
    places = dict.fromkeys((at + offset) % len(fleet) for offset in (1, *(step * n for n in range(1, OTHERS + 1))))
    return [fleet[i] for i in places if i != at]


async def _all(gate: asyncio.Semaphore, work: Sequence[Awaitable[T]]) -> list[T]:
    async def one(each: Awaitable[T]) -> T:
        async with gate:
            return await each

    return await asyncio.gather(*(one(w) for w in work))


# -- URLs ----------------------------------------------------------------------------------------------------------


async def _urls(subject: Subject, others: Sequence[Subject]) -> list[Row]:
    if subject.url is None:
        return [Row(check, subject.name, "not-applicable", "not hosted") for check in (OWN, NONE, OTHER)]
    rows = [await _own(subject, subject.url)]
    if subject.token is None:
        return rows + [Row(check, subject.name, "not-applicable", "public") for check in (NONE, OTHER)]
    rows.append(await _refused(NONE, subject.name, subject.url, {"no token": None}))
    strangers = {f"the token of {o.name}": o.token for o in others if o.token is not None}
    if not strangers:
        return [*rows, Row(OTHER, subject.name, "not-applicable", "no other token")]
    return [*rows, await _refused(OTHER, subject.name, subject.url, strangers)]


async def _own(subject: Subject, url: str) -> Row:
    try:
        async with Conversation(url, subject.token) as talk:
            await talk.open()
            tools = len(await talk.tools())
    except Refused as fault:
        return Row(OWN, subject.name, "failed", f"it is refused (HTTP {fault.status})")
    except (NotMcp, RpcError, Unavailable) as fault:
        return Row(OWN, subject.name, "failed", str(fault))
    return Row(OWN, subject.name, "ok", f"{tools} tools")


async def _refused(check: str, name: str, url: str, tokens: Mapping[str, Secret | None]) -> Row:
    for said, token in tokens.items():
        try:
            status = await status_of(url, token)
        except Unavailable as fault:
            return Row(check, name, "failed", f"{said}: no answer ({fault})")
        if status != 401:
            return Row(check, name, "failed", f"{said}: HTTP {status}")
    return Row(check, name, "ok")


# -- inside --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Door:
    """A listener on this machine's loopback that nobody but a leaking sandbox can know of."""

    port: int
    opened: bool = False


@contextlib.asynccontextmanager
async def _listeners(count: int) -> AsyncIterator[list[_Door]]:
    async with contextlib.AsyncExitStack() as open_ones:
        doors = []
        for _ in range(count):
            door = _Door(0)

            async def called(_: asyncio.StreamReader, writer: asyncio.StreamWriter, door: _Door = door) -> None:
                door.opened = True
                writer.close()

            server = await asyncio.start_server(called, "127.0.0.1", 0)
            open_ones.callback(server.close)
            door.port = server.sockets[0].getsockname()[1]
            doors.append(door)
        yield doors


async def _look(subject: Subject, asked: Mapping[str, Any]) -> _Look:
    program = resources.files("mcpiac.probe").joinpath("look.py").read_text("utf-8")
    try:
        ended = await subject.run(shlex.join(["python3", "-I", "-c", program, json.dumps(asked)]))
    except ProviderError as fault:
        return _Look(fault=str(fault))
    told = _told(ended.stdout)
    if told is None:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        return _Look(fault=f"exit {ended.exit_code}: {last[0][:200] if last else 'it printed nothing'}")
    return told


async def _forget(subject: Subject, path: str) -> None:
    with contextlib.suppress(ProviderError):
        await subject.run(shlex.join(["rm", "-f", "--", path]))


def _told(stdout: str) -> _Look | None:
    """What a look printed, or None where it is not what one prints."""
    for line in reversed(stdout.splitlines()):
        if not line.startswith('{"mcpiac-look"') or len(line) > HELD_MAX:
            continue
        try:
            told = json.loads(line)["mcpiac-look"]
            return _Look(
                environment={
                    str(name): (frozenset(map(str, macs["whole"])), frozenset(map(str, macs["pieces"])))
                    for name, macs in told["environment"].items()
                },
                files={str(path): str(mac) for path, mac in told["files"].items()},
                addresses=[str(a) for a in told["addresses"]][:64],
                listens=frozenset(int(p) for p in told["listens"]),
                answered=[(str(host), int(port)) for host, port in told["answered"]],
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
    return None


def _targets(others: Sequence[Subject], held: Mapping[str, _Look]) -> list[tuple[str, int]]:
    """Where the others could be reached: their own addresses, and where their URLs are served on this machine."""
    targets = [(address, o.port) for o in others for address in held[o.name].addresses]
    return targets + [_loopback(o.url) for o in others if o.url is not None and _is_loopback(o.url)]


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _loopback(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return (parts.hostname or "127.0.0.1", parts.port or 80)


def _secrets(subject: Subject, others: Sequence[Subject], held: Mapping[str, _Look], seen: _Look) -> Row:
    """Names by name; values by their HMACs, whole or as a piece of another. What it declares itself is its own."""
    if seen.fault:
        return _blind(SECRETS, subject, seen)
    own = {mac for name in subject.secrets for mac in seen.environment.get(name, _NOTHING)[0]}
    absent: list[str] = []
    for other in others:
        if held[other.name].fault:
            return Row(SECRETS, subject.name, "failed", f"{other.name} could not be looked at")
        for name in sorted(other.secrets - subject.secrets):
            if name in seen.environment:
                return Row(SECRETS, subject.name, "failed", f"{name} of {other.name} is in its environment")
            absent.append(name)
        for secret in sorted(other.secrets):
            values = held[other.name].environment.get(secret, _NOTHING)[0] - own
            for name, (whole, pieces) in seen.environment.items():
                if name not in subject.secrets and values & (whole | pieces):
                    said = f"{name} holds the value of {other.name}'s {secret}"
                    return Row(SECRETS, subject.name, "failed", said)
    if not absent:
        return Row(SECRETS, subject.name, "not-applicable", "no other secret")
    more = f" and {len(set(absent)) - 1} more" if len(set(absent)) > 1 else ""
    return Row(SECRETS, subject.name, "ok", f"{absent[0]}{more} absent")


def _files(subject: Subject, others: Sequence[Subject], held: Mapping[str, _Look], seen: _Look) -> Row:
    if seen.fault:
        return _blind(FILES, subject, seen)
    if not others:
        return Row(FILES, subject.name, "not-applicable", "no other server")
    for other in others:
        look = held[other.name]
        if look.fault:
            return Row(FILES, subject.name, "failed", f"{other.name} could not be looked at")
        for path, mac in sorted(look.files.items()):
            if seen.files.get(path) == mac:
                return Row(FILES, subject.name, "failed", f"{path} of {other.name} can be read")
    count = sum(len(held[o.name].files) for o in others)
    return Row(FILES, subject.name, "ok", f"{count} file{'s' if count != 1 else ''} tried")


def _network(subject: Subject, others: Sequence[Subject], held: Mapping[str, _Look], seen: _Look, door: _Door) -> Row:
    """The listener on this machine is the proof; another's port answering is one too, unless it is our own port."""
    if seen.fault:
        return _blind(NETWORK, subject, seen)
    if door.opened:
        return Row(NETWORK, subject.name, "failed", "it reached this machine's loopback")
    own = {("127.0.0.1", port) for port in seen.listens}
    named = {target: o.name for o in others for target in _targets([o], held)}
    for target in seen.answered:
        if target in named and target not in own:
            return Row(NETWORK, subject.name, "failed", f"{target[0]}:{target[1]} of {named[target]} answers")
    return Row(NETWORK, subject.name, "ok")


def _blind(check: str, subject: Subject, look: _Look) -> Row:
    return Row(check, subject.name, "failed", f"its sandbox could not be looked at: {look.fault}")


_NOTHING: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
