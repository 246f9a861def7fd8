"""One ``mcpiac`` process in the world: what its commands do, from the lock to the last event."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.sim import virtual
from tests.sim.net import FAULTS, Net, provider, virtual_time
from tests.sim.platter import Platter, SimDisk
from tests.sim.virtual import Clock, Killed
from tests.sim.world import World

from mcpiac.executor.recover import recover
from mcpiac.executor.run import execute
from mcpiac.executor.stop import Stop
from mcpiac.model.codec import digest, plain
from mcpiac.model.diagnostic import Diagnosed, Diagnostic
from mcpiac.model.event import Event
from mcpiac.model.outcome import ProviderError
from mcpiac.model.plan import Plan, PlanOptions
from mcpiac.model.ports import Materials
from mcpiac.model.record import Fingerprint
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress, ServerSpec, Stack
from mcpiac.planner import plan as make_plan
from mcpiac.providers import registry
from mcpiac.state.lock import Holder
from mcpiac.state.store import Session, Store

FOLDER = Path("/project/state")
STACK = "demo"


@dataclass
class Ended:
    """How a command went. ``code`` as the command line's exit code; None: killed."""

    code: int | None
    plan: Plan | None = None
    findings: list[Diagnostic] = field(default_factory=list)
    rounds: int = 0
    requests: int = 0
    operations: int = 0


class SimProcesses:
    """Who a simulated process is, and who else is alive."""

    def __init__(self, pid: int, boot: str, living: set[int]) -> None:
        self.pid, self.boot, self.living = pid, boot, living

    def holder(self, command: str, since: str) -> Holder:
        return Holder(f"{self.pid:08x}", "user", "machine", self.boot, self.pid, "1", command, since)

    def alive(self, holder: Holder) -> bool:
        return holder.pid in self.living and holder.pid != self.pid


class SimProbe:
    """Asks the world instead of a URL."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def check(
        self, url: str, token: Secret | None, *, public: bool, timeout: float, progress: Callable[[str], None]
    ) -> str:
        for box in self.world.boxes.values():
            for port, item in box.hosted.items():
                if url.startswith(item["url"].rstrip("/")):
                    right = public or (token is not None and token.reveal() == self.world.tokens[box.id, port])
                    if box.state in ("ready", "idle", "running") and box.service and right:
                        return "1 tool"
        raise ProviderError("rejected", f"no answer with token {token.reveal() if token else None}")


class Machine:
    """What outlives a process: the disk, the secrets' values, what is alive, everything that was ever shown."""

    def __init__(self, world: World, clock: Clock, rng: random.Random) -> None:
        self.world = world
        self.clock = clock
        self.rng = rng
        self.platter = Platter()
        self.values: dict[str, dict[str, str]] = {}
        self.shown: list[str] = []
        self.living: set[int] = set()
        self.boot = "boot-1"
        self.pids = 100
        self.ids = 0

    def reboot(self) -> None:
        """Power loss: what was not synced is lost by chance."""
        self.platter.power_loss(self.rng)
        self.living.clear()

    def store(self, disk: SimDisk, pid: int) -> Store:
        who: Any = SimProcesses(pid, self.boot, self.living)
        return Store(FOLDER, disk=disk, processes=who, now=lambda: datetime.fromtimestamp(self.clock.now(), UTC))

    def look(self) -> Store:
        """The state as anybody may read it."""
        return self.store(SimDisk(self.platter), 1)

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:04x}{self.rng.getrandbits(48):012x}"


@dataclass
class Trouble:
    """What befalls one process. ``disk`` answers for each file operation as ``SimDisk.fail``; ``kill_round`` ends it
    at that round of its loop; ``interrupt_at`` are requests at which it is asked to stop."""

    rate: float = 0.0
    kinds: Sequence[str] = FAULTS
    fail_at: dict[int, str] = field(default_factory=dict)
    disk: Callable[[str, int], bool] = lambda what, number: False
    kill_round: int | None = None
    hook: Callable[[int], None] = lambda number: None
    interrupt_at: tuple[int, ...] = ()
    wrong_account: bool = False


CALM = Trouble()


class Process:
    """One run of a command."""

    def __init__(self, machine: Machine, trouble: Trouble = CALM) -> None:
        self.machine = machine
        self.trouble = trouble
        machine.pids += 1
        self.pid = machine.pids
        self.disk = SimDisk(machine.platter, lambda what: trouble.disk(what, self.disk.operations), self._died)
        self.stop = Stop()
        self.net = Net(
            machine.world,
            machine.rng,
            rate=trouble.rate,
            kinds=trouble.kinds,
            fail_at=trouble.fail_at,
            hook=self._before_request,
        )
        self.net.wrong_account = trouble.wrong_account

    def _died(self) -> None:
        self.net.dead = True
        virtual.die()

    def _before_request(self, number: int) -> None:
        self.trouble.hook(number)
        if number in self.trouble.interrupt_at:
            self.stop.request()

    def apply(
        self, stack: Stack | None, options: PlanOptions | None = None, parallelism: int = 4, saved: Plan | None = None
    ) -> Ended:
        """``mcpiac apply`` (or ``destroy`` by options), from the lock to the snapshot."""
        machine, ended = self.machine, Ended(None)
        machine.living.add(self.pid)
        patches = virtual_time(machine.clock, machine.rng)
        try:
            with ExitStack() as held:
                for patch in patches:
                    held.enter_context(patch)
                work = self._apply(stack, options or PlanOptions(), parallelism, ended, saved)
                _, ended.rounds = virtual.run(machine.clock, work, self.trouble.kill_round)
        except Killed:
            ended.code = None
        finally:
            self.net.dead = True
            self.disk.end()
            machine.living.discard(self.pid)
            ended.requests, ended.operations = self.net.requests, self.disk.operations
        for finding in ended.findings:
            machine.shown.append(repr(finding))
        return ended

    async def _apply(
        self, stack: Stack | None, options: PlanOptions, parallelism: int, ended: Ended, saved: Plan | None
    ) -> None:
        try:
            ended.code = await self._locked(stack, options, parallelism, ended, saved)
        except Diagnosed as fault:
            ended.findings += fault.diagnostics
            ended.code = 1
        except ProviderError as fault:
            self.machine.shown.append(repr(fault))
            ended.code = 1

    async def _locked(
        self, stack: Stack | None, options: PlanOptions, parallelism: int, ended: Ended, saved: Plan | None
    ) -> int:
        machine, there = self.machine, self.machine.world.extended
        lineage = f"{machine.rng.getrandbits(128):032x}" if saved is None else saved.lineage
        with machine.store(self.disk, self.pid).lock(STACK, "apply", lineage=lineage) as session:
            service = provider(self.net, extended=there)
            now = datetime.fromtimestamp(machine.clock.now(), UTC)
            ids = [box.id for box in session.state.sandboxes.values()]
            live = await service.refresh(ids)
            declared = {} if options.destroy or stack is None else stack.servers
            wanted = [name for name, spec in declared.items() if not spec.disabled]
            told = await recover(session.journal, live, service, now=now, wanted=wanted)
            ended.findings += told
            if any(one.severity == "error" for one in told):
                return 1
            made = saved or self._plan(session, stack, live, options, now)
            ended.plan = made
            ended.findings += made.diagnostics
            if made.errors:
                return 1
            machine.shown.append(repr(plain(made.changes)))
            finished = await execute(
                made,
                provider=service,
                secrets={s: {n: Secret(v) for n, v in named.items()} for s, named in machine.values.items()},
                journal=session.journal,
                probe=SimProbe(machine.world),
                emit=self._emit,
                materials=Materials(b"bridge"),
                parallelism=parallelism,
                stop=self.stop,
                clock=machine.clock,
                random=machine.rng.random,
            )
            return 130 if finished.interrupted else 1 if finished.failed or finished.skipped else 0

    def _plan(self, session: Session, stack: Stack | None, live: Any, options: PlanOptions, now: datetime) -> Plan:
        machine = self.machine
        name = "local" if machine.world.extended else "sandboxer"
        traits = registry.traits("local") if machine.world.extended else provider(self.net, extended=False).traits
        assert traits.provider == name
        prints = {
            server: {n: _print(session.state.lineage, server, n, v) for n, v in named.items()}
            for server, named in machine.values.items()
        }
        return make_plan(
            stack,
            session.state,
            live,
            traits,
            options=options,
            fingerprints=prints,
            now=now,
            ids=machine.new_id,
        )

    def _emit(self, event: Event) -> None:
        self.machine.shown.append(repr(event))


def _print(lineage: str, server: str, name: str, value: str) -> Fingerprint:
    return Fingerprint("key", digest([lineage, server, name, value]))


def stack_of(servers: Mapping[str, ServerSpec]) -> Stack:
    """A stack as it would be read."""
    return Stack(STACK, "local", dict(servers), "stacks/demo.yaml", digest(servers))


def with_egress(spec: ServerSpec, extended: bool) -> ServerSpec:
    """Egress that the provider of the world can enforce."""
    return spec if extended else ServerSpec(**{**_fields(spec), "egress": Egress("all")})


def _fields(spec: ServerSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__slots__}


def names(findings: Sequence[Diagnostic]) -> list[str]:
    return [one.code for one in findings]
