"""The N-th input or output fails, for N = 1, 2, 3 … until a run passes, over scripted histories."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.sim.client import Trouble
from tests.sim.history import History

from mcpiac.model.spec import FileSpec, Lifecycle, Package

Script = tuple[Callable[[History], None], Callable[[History], None], dict[str, Any]]
"""What there is before, the edit, and the options of the run in which something fails."""


def _history(extended: bool = True) -> History:
    for seed in range(1000):
        one = History(seed)
        if one.extended == extended:
            return one
    raise AssertionError("no such seed")


def add(*names: str) -> Callable[[History], None]:
    def edit(one: History) -> None:
        for name in names:
            one.servers[name] = replace(one.spec(), secrets=one.servers.get("a", one.spec()).secrets)
            one._value(name)

    return edit


def change(name: str, **values: Any) -> Callable[[History], None]:
    def edit(one: History) -> None:
        one.servers[name] = replace(one.servers[name], **values)

    return edit


def remove(name: str) -> Callable[[History], None]:
    def edit(one: History) -> None:
        del one.servers[name]

    return edit


def move(old: str, new: str) -> Callable[[History], None]:
    def edit(one: History) -> None:
        one.servers[new] = replace(one.servers.pop(old), lifecycle=Lifecycle(moved_from=old))
        one.machine.values[new] = one.machine.values[old]

    return edit


def secret(name: str) -> Callable[[History], None]:
    return lambda one: one._value(name)


def behind(deed: Callable[[Any], None]) -> Callable[[History], None]:
    def edit(one: History) -> None:
        for box in list(one.world.ours(one.lineage or "?")):
            deed(box)

    return edit


def gone(one: History) -> None:
    for box in one.world.ours(one.lineage or "?"):
        del one.world.boxes[box.id]


def both(*edits: Callable[[History], None]) -> Callable[[History], None]:
    def edit(one: History) -> None:
        for each in edits:
            each(one)

    return edit


def nothing(one: History) -> None: ...


NEWER = Package("npm", "server", "2.0.0")
SCRIPTS: dict[str, Script] = {
    "first": (nothing, add("a"), {}),
    "first of two": (nothing, add("a", "b"), {}),
    "add": (add("a"), add("b"), {}),
    "version": (add("a"), change("a", package=NEWER), {}),
    "args": (add("a"), change("a", args=("x",)), {}),
    "env": (add("a"), change("a", env={"LOG": "debug"}), {}),
    "files": (add("a"), change("a", files={"/home/user/n": FileSpec("one")}), {}),
    "secret": (add("a"), secret("a"), {}),
    "size": (add("a"), change("a", size="large"), {}),
    "ttl": (add("a"), change("a", ttl=86400), {}),
    "idle": (add("a"), change("a", idle=1), {}),
    "port": (add("a"), change("a", port=9000), {}),
    "access": (add("a"), change("a", access="public"), {}),
    "unhosted": (add("a"), change("a", hosted=False), {}),
    "title": (add("a"), change("a", title="T"), {}),
    "labels": (add("a"), change("a", labels={"team": "x"}), {}),
    "disable": (add("a"), change("a", disabled=True), {}),
    "enable": (both(add("a"), change("a", disabled=False)), nothing, {}),
    "move": (add("a"), move("a", "b"), {}),
    "move and change": (add("a"), both(move("a", "b"), change("b", args=("x",))), {}),
    "remove": (add("a", "b"), remove("a"), {}),
    "remove and add": (add("a"), both(remove("a"), add("b")), {}),
    "replace": (add("a"), nothing, {"replace": ("a",)}),
    "replace and change": (add("a"), change("a", package=NEWER), {"replace": ("a",)}),
    "stopped": (add("a"), behind(lambda box: setattr(box, "state", "archived")), {}),
    "died": (add("a"), behind(lambda box: setattr(box, "state", "error")), {}),
    "gone": (add("a"), gone, {}),
    "hidden": (add("a"), behind(lambda box: box.hosted.clear()), {}),
    "renew": (both(add("a"), change("a", ttl=86400)), nothing, {"renew": True}),
    "everything": (
        add("a", "b"),
        both(remove("b"), add("c"), change("a", size="large", args=("x",), idle=1), secret("a")),
        {},
    ),
    "destroy": (add("a", "b"), nothing, {"destroy": True}),
}


def _disk(at: int, kills: bool) -> Trouble:
    def fail(what: str, operation: int) -> bool:
        if operation != at:
            return False
        if kills:
            return True
        raise OSError(errno.ENOSPC, "simulated")

    return Trouble(disk=fail)


def _full(at: int) -> Trouble:
    def fail(what: str, operation: int) -> bool:
        if operation >= at and what not in ("read", "open", "remove"):
            raise OSError(errno.ENOSPC, "simulated")
        return False

    return Trouble(disk=fail)


SWEEPS: dict[str, tuple[str, Callable[[int], Trouble]]] = {
    "answer lost after the effect": ("requests", lambda n: Trouble(fail_at={n: "timeout_after"})),
    "reset before the effect": ("requests", lambda n: Trouble(fail_at={n: "reset_before"})),
    "every answer lost from there on": (
        "requests",
        lambda n: Trouble(fail_at=dict.fromkeys(range(n, n + 2000), "reset_after")),
    ),
    "cut answer": ("requests", lambda n: Trouble(fail_at={n: "cut"})),
    "killed at a request": ("requests", lambda n: Trouble(interrupt_at=(n, n))),
    "disk operation fails": ("operations", lambda n: _disk(n, False)),
    "killed in a disk operation": ("operations", lambda n: _disk(n, True)),
    "disk full from there on": ("operations", _full),
    "killed at a round of the loop": ("rounds", lambda n: Trouble(kill_round=n)),
}


def sweep(script: Script, kind: str, extended: bool, step: int) -> Iterator[int]:
    """Each N until the run has no N-th operation any more."""
    before, edit, options = script
    counts, trouble = SWEEPS[kind]
    n = 1
    while True:
        one = _history(extended)
        before(one)
        if one.servers:
            assert one.apply().code == 0
        edit(one)
        if options.get("replace"):
            options = {"replace": tuple(f"demo/{name}" if "/" not in name else name for name in options["replace"])}
        one.steps.append(f"{kind} at {n}")
        ended = one.apply(trouble(n), **options)
        if n % 3 == 0:
            one.machine.reboot()
            one.check()
        one.settle()
        yield n
        if ended.code is not None and getattr(ended, counts) < n:
            return
        n += step


@pytest.mark.parametrize("name", SCRIPTS)
def test_slice(name: str) -> None:
    """A few of each, at places that differ from script to script."""
    start = sum(map(ord, name))
    for place, kind in enumerate(SWEEPS):
        list(sweep(SCRIPTS[name], kind, extended=(start + place) % 4 != 0, step=41 + (start + place) % 17))


@pytest.mark.slow
@pytest.mark.parametrize("extended", [True, False], ids=["local", "cloud"])
@pytest.mark.parametrize("kind", SWEEPS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_whole(name: str, kind: str, extended: bool) -> None:
    assert max(sweep(SCRIPTS[name], kind, extended, 1)) >= 2
