"""One history: a world, a machine, and what happens to them, all decided by a seed."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.sim import invariants
from tests.sim.client import STACK, Ended, Machine, Process, SimDisk, Trouble, names, stack_of
from tests.sim.net import FAULTS
from tests.sim.virtual import Clock
from tests.sim.world import CANARY, USABLE, World

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.plan import PlanOptions
from mcpiac.model.record import State
from mcpiac.model.spec import Egress, FileSpec, Lifecycle, Package, SecretRef, ServerSpec, Stack

NAMES = ("a", "b", "c", "d", "e")
DISK_FAULTS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)


class Broken(AssertionError):
    """An invariant does not hold; the message can be pasted as a test."""


@dataclass
class History:
    """A world with one stack in it. ``steps`` is what happened so far, for the report of a failure."""

    seed: int
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = Clock()
        self.extended = self.rng.random() < 0.75
        self.world = World(self.clock, self.rng, extended=self.extended)
        self.machine = Machine(self.world, self.clock, self.rng)
        self.servers: dict[str, ServerSpec] = {}
        self.lineage: str | None = None
        for number in range(self.rng.randint(0, 2)):
            self.world.foreign(f"mcp-{STACK}--a-{number:06x}", f"{number:032x}/a/k{number}")
        if self.rng.random() < 0.3:
            self.world.foreign("", None)
        self.others = invariants.foreign(self.machine)

    # -- what a user does -------------------------------------------------------------------------------------------

    def spec(self) -> ServerSpec:
        """A server that is new to the stack."""
        return ServerSpec(
            package=Package("npm", "server", "1.0.0"),
            secrets={"TOKEN": SecretRef("env:TOKEN")} if self.rng.random() < 0.7 else {},
            egress=Egress("none" if self.extended else "all"),
        )

    def edit(self) -> None:
        """One edit of the stack file or of a secret's value."""
        name = self.rng.choice(NAMES)
        spec = self.servers.get(name)
        if spec is None and name in {other.lifecycle.moved_from for other in self.servers.values()}:
            return
        if spec is None:
            self.servers[name] = self.spec()
            self._value(name)
            self.steps.append(f"add {name}")
            return
        what = self.rng.choice(sorted(EDITS))
        EDITS[what](self, name, spec)
        self.steps.append(f"{what} {name}")

    def _value(self, name: str) -> None:
        self.machine.values[name] = {"TOKEN": f"sec{CANARY}{self.rng.getrandbits(64):016x}"}

    @property
    def stack(self) -> Stack:
        return stack_of(self.servers)

    def apply(self, trouble: Trouble | None = None, **options: Any) -> Ended:
        """A run, and the invariants after it."""
        ended = Process(self.machine, trouble or Trouble()).apply(
            None if options.get("destroy") else self.stack,
            PlanOptions(allow_gone=True, allow_empty=True, **options),
            parallelism=self.rng.choice((1, 2, 8)),
        )
        codes = sorted({one.code for one in ended.findings if one.severity == "error"})
        self.steps.append(f"{'destroy' if options.get('destroy') else 'apply'} → {ended.code} {' '.join(codes)}")
        self.check()
        return ended

    # -- what befalls it --------------------------------------------------------------------------------------------

    def trouble(self) -> Trouble:
        """Trouble for one process."""
        rng = self.rng
        one = Trouble(rate=rng.choice((0.0, 0.0, 0.03, 0.1, 0.3)))
        if rng.random() < 0.2:
            # The same few faults again and again: what retries run into.
            one.rate, one.kinds = rng.choice((0.3, 0.6)), rng.sample(FAULTS, rng.randint(1, 3))
        kind = rng.random()
        if kind < 0.35:
            one.kill_round = rng.randint(1, 60 + 120 * max(1, len(self.servers)))
        elif kind < 0.55:
            one.disk = self._disk_trouble()
        elif kind < 0.7:
            one.interrupt_at = tuple(sorted(rng.sample(range(1, 40), rng.randint(1, 2))))
        if rng.random() < 0.4:
            at = rng.randint(1, 40)
            one.hook = lambda number: self._meanwhile() if number == at else None
        recorded = bool(self.lineage and self.world.ours(self.lineage))
        one.wrong_account = self.extended and recorded and rng.random() < 0.03
        told = [f"rate {one.rate}"] if one.rate else []
        told += [f"of {one.kinds}"] if len(one.kinds) <= 3 else []
        told += [f"killed at round {one.kill_round}"] if one.kill_round else []
        told += ["a bad disk"] if 0.35 <= kind < 0.55 else []
        told += [f"interrupts at {one.interrupt_at}"] if one.interrupt_at else []
        told += ["another account"] if one.wrong_account else []
        self.steps.append(f"trouble: {', '.join(told) or 'none'}")
        return one

    def _disk_trouble(self) -> Callable[[str, int], bool]:
        rng = self.rng
        at, number, full = rng.randint(1, 120), rng.choice(DISK_FAULTS), rng.random() < 0.5
        kills = rng.random() < 0.5
        changing = {"create", "rename", "remove", "sync_folder", "append", "fsync", "make_folder", "flock"}

        def fail(what: str, operation: int) -> bool:
            if operation < at or what not in changing:
                return False
            if kills:
                return True
            if operation == at or full:
                raise OSError(number, "simulated")
            return False

        return fail

    def _meanwhile(self) -> None:
        """In the middle of a run: a reader, a second run, somebody at the service."""
        self.machine.look().read(STACK)
        if self.rng.random() < 0.5:
            other = self.machine.store(SimDisk(self.machine.platter), 2)
            with pytest.raises(Diagnosed, match="state-locked"), other.lock(STACK, "apply"):
                raise Broken("two runs hold the lock")
        else:
            self.somebody()

    def somebody(self) -> None:
        """Somebody does something at the service, or the service itself."""
        boxes = self.world.ours(self.lineage) if self.lineage else []
        if not boxes:
            return
        box, what = self.rng.choice(boxes), self.rng.choice(sorted(DEEDS))
        DEEDS[what](self, box)
        self.steps.append(f"somebody: {what} {box.id}")

    def wait(self) -> None:
        """Time passes; keys are forgotten after an hour."""
        self.clock.seconds += self.rng.choice((30.0, 600.0, 2 * 3600.0))
        if self.clock.seconds > 3600:
            old = {b.key for b in self.world.made if b.created < self.clock.time() - 3600}
            self.world.keys = {key: id for key, id in self.world.keys.items() if key not in old}
        if self.rng.random() < 0.3:
            self.clock.skew = self.rng.choice((-1800.0, 0.0, 1800.0))
        self.steps.append("time passes")

    # -- what holds -------------------------------------------------------------------------------------------------

    def check(self) -> State | None:
        """Every invariant; ``Broken`` says how to play this again."""
        try:
            state = invariants.loads(self.machine.look())
            if state is not None:
                assert self.lineage in (None, state.lineage) or not self._made(), "the lineage changed"
                self.lineage = state.lineage
            invariants.nothing_lost(self.machine, state, self.lineage)
            invariants.nothing_twice(self.machine, state, self.lineage)
            invariants.nobody_else_touched(self.others, self.machine)
            invariants.nothing_told(self.machine)
        except (AssertionError, Diagnosed) as fault:
            raise self.broken(str(fault)) from fault
        return state

    def _made(self) -> bool:
        """Whether a sandbox was ever made under the lineage: before that, it binds nothing."""
        return any((box.owner or "").startswith(f"{self.lineage}/") for box in self.world.made)

    def broken(self, why: str) -> Broken:
        steps = "\n    ".join(self.steps)
        return Broken(f"{why}\n\ndef test_seed_{self.seed}():\n    play({self.seed})\n\n    # {steps}")

    def settle(self) -> None:
        """Without faults it converges: an empty plan, what is there is what was declared; destroy leaves nothing."""
        self.steps.append("calm")
        for _ in range(5):
            ended = self.apply()
            if ended.code == 0 and ended.plan is not None and not ended.plan.actions:
                break
            if "create-unreadable" in names(ended.findings):
                self._make_readable()
        else:
            left = [f"{a.id} ({a.summary})" for a in ended.plan.actions] if ended.plan else None
            errors = [one for one in ended.findings if one.severity == "error"]
            raise self.broken(f"it does not converge: {ended.code} {left} {errors}")
        state = self.check()
        try:
            if state is None:
                assert all(spec.disabled for spec in self.servers.values()), "nothing is recorded"
                return
            if self.extended:
                assert not [entry for entry in state.open if entry.action.server in self.servers]
            invariants.as_declared(self.machine, state, self.servers)
        except (AssertionError, KeyError) as fault:
            raise self.broken(f"{type(fault).__name__} {fault}") from fault
        ended = self.apply(destroy=True)
        if ended.code != 0 or self.world.ours(state.lineage):
            errors = [one for one in ended.findings if one.severity == "error"]
            raise self.broken(f"destroy: {ended.code} {errors}, left: {self.world.ours(state.lineage)}")

    def _make_readable(self) -> None:
        """The user does as the message says."""
        for box in self.world.ours(self.lineage or "?"):
            if box.state not in USABLE:
                box.state = "ready"
        self.steps.append("the user starts what could not be read")


def play(seed: int) -> History:
    """One whole history; raises ``Broken``."""
    one = History(seed)
    for _ in range(one.rng.randint(1, 3)):
        one.edit()
    for _ in range(one.rng.randint(1, 4)):
        one.apply(one.trouble())
        if one.rng.random() < 0.3:
            one.machine.reboot()
            one.steps.append("power loss")
            one.check()
        for _ in range(one.rng.randint(0, 2)):
            one.rng.choice((one.edit, one.edit, one.somebody, one.wait))()
        if one.rng.random() < 0.1:
            one.apply(one.trouble(), destroy=True)
    one.settle()
    return one


Edit = Callable[[History, str, ServerSpec], None]


def _set(**values: Any) -> Edit:
    def edit(one: History, name: str, spec: ServerSpec) -> None:
        chosen = {key: one.rng.choice(options) for key, options in values.items()}
        one.servers[name] = replace(spec, **chosen)

    return edit


def _remove(one: History, name: str, spec: ServerSpec) -> None:
    del one.servers[name]


def _rename(one: History, name: str, spec: ServerSpec) -> None:
    state = one.machine.look().read(STACK)
    sources = {other.lifecycle.moved_from for other in one.servers.values()}
    taken = {*one.servers, *sources, *(state.servers if state else ())}
    fresh = [other for other in (*NAMES, "f", "g", "h") if other not in taken]
    if not fresh or (spec.lifecycle.moved_from and state and name not in state.servers):
        return
    new = one.rng.choice(fresh)
    del one.servers[name]
    one.servers[new] = replace(spec, lifecycle=Lifecycle(moved_from=name))
    one.machine.values[new] = dict(one.machine.values[name])


def _secret(one: History, name: str, spec: ServerSpec) -> None:
    one._value(name)


EDITS: dict[str, Edit] = {
    "args": _set(args=((), ("x",), ("y", "z"))),
    "env": _set(env=({}, {"LOG": "info"}, {"LOG": "debug", "A": "b"})),
    "files": _set(files=({}, {"/home/user/n": FileSpec("one")}, {"/home/user/n": FileSpec("two")})),
    "version": _set(package=(Package("npm", "server", "1.0.0"), Package("npm", "server", "2.0.0"))),
    "idle": _set(idle=(None, 1, 15, 60)),
    "ttl": _set(ttl=(None, 86400, 2 * 86400)),
    "size": _set(size=("small", "default", "large")),
    "port": _set(port=(None, 8000, 9000)),
    "access": _set(access=("private", "public")),
    "hosted": _set(hosted=(True, False)),
    "title": _set(title=("", "T")),
    "labels": _set(labels=({}, {"team": "x"})),
    "disabled": _set(disabled=(True, False)),
    "secrets": _set(secrets=({}, {"TOKEN": SecretRef("env:TOKEN")})),
    "remove": _remove,
    "rename": _rename,
    "secret value": _secret,
}

Deed = Callable[[History, Any], None]


def _gone(one: History, box: Any) -> None:
    del one.world.boxes[box.id]


def _stopped(one: History, box: Any) -> None:
    if box.state in USABLE:
        box.state = "archived"


def _died(one: History, box: Any) -> None:
    box.state = "error"


def _hidden(one: History, box: Any) -> None:
    box.hosted.clear()


def _hosted(one: History, box: Any) -> None:
    url = f"https://{box.id}-4000.example/"
    box.hosted[4000] = {"port": 4000, "url": url, "access": "public", "localhost": False, "title": None}


def _idled(one: History, box: Any) -> None:
    box.idle = 7


def _renamed(one: History, box: Any) -> None:
    box.name = "mine"


def _breaks(one: History, box: Any) -> None:
    one.world.broken_setups = 1


DEEDS: dict[str, Deed] = {
    "break the next set-up": _breaks,
    "delete": _gone,
    "stop": _stopped,
    "die": _died,
    "hide": _hidden,
    "host": _hosted,
    "idle": _idled,
    "rename": _renamed,
}
