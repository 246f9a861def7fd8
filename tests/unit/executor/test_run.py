"""Runs in a simulated world: what is done, what is kept after a failure, an interrupt, a broken journal."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.sim.client import STACK, Ended, Machine, Process, Trouble, stack_of
from tests.sim.virtual import Clock
from tests.sim.world import World

from mcpiac.model.action import Action, Entry
from mcpiac.model.event import ActionDone, ActionFailed, ActionSkipped, ActionStarted, Event, RunFinished, RunStarted
from mcpiac.model.plan import PlanOptions
from mcpiac.model.record import State
from mcpiac.model.spec import Package, SecretRef, ServerSpec

SPEC = ServerSpec(package=Package("npm", "x", "1.0.0"), secrets={"TOKEN": SecretRef("env:TOKEN")})


class Scene:
    """A world with a stack of these servers."""

    def __init__(self, *names: str) -> None:
        self.clock = Clock()
        rng = random.Random(7)
        self.world = World(self.clock, rng, extended=True)
        self.machine = Machine(self.world, self.clock, rng)
        self.servers = dict.fromkeys(names, SPEC)
        self.machine.values = {name: {"TOKEN": f"secret-of-{name}"} for name in names}
        self.events: list[Event] = []
        self.processes: list[Process] = []

    def apply(self, trouble: Trouble | None = None, parallelism: int = 4, **options: bool) -> Ended:
        process = Process(self.machine, trouble or Trouble())
        self.processes.append(process)
        emit = process._emit

        def watch(event: Event) -> None:
            self.events.append(event)
            emit(event)

        process._emit = watch  # type: ignore[method-assign]
        self.events = []
        stack = None if options.get("destroy") else stack_of(self.servers)
        return process.apply(stack, PlanOptions(**options), parallelism=parallelism)

    @property
    def state(self) -> State:
        state = self.machine.look().read(STACK)
        assert state is not None
        return state

    def of(self, kind: type, *servers: str) -> list[str]:
        return [e.action.id for e in self.events if type(e) is kind and (not servers or e.action.server in servers)]  # type: ignore[attr-defined,union-attr]


def requests(scene: Scene) -> int:
    return scene.processes[-1].net.requests


def all_of(kind: str, first: int = 3, last: int = 400) -> dict[int, str]:
    return dict.fromkeys(range(first, last), kind)


def test_everything_is_announced_then_started_and_done_in_order() -> None:
    scene = Scene("a", "b")
    assert scene.apply().code == 0
    first, last = scene.events[0], scene.events[-1]
    assert isinstance(first, RunStarted)
    assert [one.id for one in first.actions] == [one.id for one in scene.processes[0].machine and first.actions]
    assert isinstance(last, RunFinished)
    assert (last.done, last.failed, last.skipped) == (len(first.actions), 0, 0)
    for server in ("a", "b"):
        chain = [one.id for one in first.actions if one.server == server]
        assert scene.of(ActionStarted, server) == scene.of(ActionDone, server) == chain
    assert scene.state.open == ()


def test_a_failed_setup_taints_skips_its_chain_and_leaves_the_others_alone() -> None:
    scene = Scene("a", "b")
    scene.world.broken_setups = 1
    ended = scene.apply(parallelism=1)
    assert ended.code == 1
    failed = [e for e in scene.events if isinstance(e, ActionFailed)]
    assert [e.action.verb for e in failed] == ["exec"]
    broken = failed[0].action.server
    other = "b" if broken == "a" else "a"
    assert {e.because for e in scene.events if isinstance(e, ActionSkipped)} == {f"{broken}.exec failed"}
    assert scene.of(ActionDone, other)[-1] == f"{other}.check"
    said = failed[0].diagnostic
    assert said.code == "setup-failed"
    assert said.address == f"demo/{broken}"
    assert f"created so far and kept: sandbox {scene.state.sandboxes[broken].id} (recorded)" in said.detail
    assert "secret-of" not in repr(scene.events)
    assert "••••" in said.detail
    assert (scene.state.servers[broken].tainted or "").startswith("exec: ")
    assert "secret-of" not in (scene.state.servers[broken].tainted or "")
    assert scene.apply().code == 0
    assert scene.state.servers[broken].tainted is None
    assert scene.of(ActionStarted) == [
        f"{broken}.exec",
        f"{broken}.host-8000",
        f"{broken}.idle",
        f"{broken}.check",
    ]


def test_a_create_whose_answer_was_lost_is_found_by_its_marker() -> None:
    scene = Scene("a")
    ended = scene.apply(Trouble(fail_at=all_of("timeout_after")))
    assert ended.code == 1
    (entry,) = scene.state.open
    assert (entry.action.verb, entry.found, scene.state.sandboxes) == ("create", None, {})
    assert [e.in_doubt for e in scene.events if isinstance(e, ActionFailed)] == [True]
    assert len(scene.world.made) == 1, "the key makes one sandbox, however often it is sent"
    ended = scene.apply()
    assert ended.code == 0
    assert [one.code for one in ended.findings if one.severity == "note"][:1] == ["create-adopted"]
    assert len(scene.world.made) == 1
    assert scene.state.open == ()
    assert not scene.apply().plan.actions  # type: ignore[union-attr]


@pytest.mark.parametrize("why", ["lost", "not usable"])
def test_a_secret_that_is_declared_no_more_leaves_what_was_adopted(why: str) -> None:
    scene = Scene("a")
    if why == "lost":
        scene.apply(Trouble(fail_at=all_of("timeout_after")))
    else:
        scene.apply(Trouble(fail_at=all_of("refused", first=4)))
    assert "TOKEN" in scene.world.made[0].env
    scene.apply(Trouble(fail_at=all_of("refused")))
    scene.servers["a"] = replace(SPEC, secrets={})
    assert scene.apply().code == 0
    assert [name for name in scene.world.made[0].env if name != "MCPIAC_OWNER"] == []
    assert not scene.apply().plan.actions  # type: ignore[union-attr]


@pytest.mark.parametrize("last", ["throttled_seconds", "no_machine", "refused"])
def test_a_refusal_after_a_lost_answer_does_not_hide_it(last: str) -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at={**all_of(last), 3: "reset_after"}))
    assert len(scene.world.made) == 1
    assert len(scene.state.open) == 1
    assert scene.apply().code == 0
    assert len(scene.world.made) == 1


def test_a_create_that_never_arrived_is_sent_again_with_its_key() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_before")))
    key = scene.state.open[0].action.key
    ended = scene.apply()
    assert ended.code == 0
    assert "create-again" in [one.code for one in ended.findings]
    assert [box.key for box in scene.world.made] == [key]
    assert scene.state.open == ()


def test_after_an_hour_it_is_lost_and_made_anew() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_before")))
    key = scene.state.open[0].action.key
    scene.clock.seconds += 3601
    ended = scene.apply()
    assert ended.code == 0
    assert "create-lost" in [one.code for one in ended.findings]
    assert [box.key for box in scene.world.made] != [key]
    assert scene.state.open == ()


def test_with_another_secret_it_is_another_create() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_before")))
    key = scene.state.open[0].action.key
    scene.machine.values["a"] = {"TOKEN": "another-secret"}
    assert scene.apply().code == 0
    (box,) = scene.world.made
    assert box.key != key
    assert box.env["TOKEN"] == "another-secret"
    assert scene.state.open == ()


def test_one_that_is_wanted_no_more_is_closed() -> None:
    scene = Scene("a", "b")
    scene.apply(Trouble(fail_at=all_of("timeout_before")))
    assert len(scene.state.open) == 2
    del scene.servers["b"]
    assert scene.apply().code == 0
    assert scene.state.open == ()
    assert sorted(scene.state.servers) == ["a"]


def test_two_with_one_marker_are_listed_and_left_alone() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_after")))
    first = scene.world.made[0]
    second = scene.world.foreign("", first.owner)
    before = requests(scene)
    ended = scene.apply()
    assert ended.code == 1
    said = next(one for one in ended.findings if one.code == "create-ambiguous")
    assert first.id in said.summary
    assert second.id in said.summary
    assert requests(scene) < before
    assert len(scene.state.open) == 1


def test_a_name_proves_nothing() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_before")))
    lineage = scene.state.lineage
    stranger = scene.world.foreign(f"mcp-demo--a-{lineage[:6]}", "f" * 32 + "/a/key")
    assert scene.apply().code == 0
    assert stranger.id not in {box.id for box in scene.state.sandboxes.values()}
    assert scene.apply(destroy=True).code == 0
    assert stranger.id in scene.world.boxes


class Cloud(Scene):
    """A service whose list does not carry the marker."""

    def __init__(self) -> None:
        super().__init__("a")
        from mcpiac.model.spec import Egress

        self.world.extended = False
        self.servers = {"a": replace(SPEC, egress=Egress("all"))}


def test_where_the_list_has_no_marker_it_is_read_in_the_sandbox() -> None:
    scene = Cloud()
    scene.apply(Trouble(fail_at=all_of("timeout_after")))
    scene.world.foreign("", None)
    scene.world.foreign("somebody's", None)
    assert scene.apply().code == 0
    assert sum(1 for box in scene.world.made if not box.foreign) == 1


def test_what_cannot_be_read_forbids_the_run() -> None:
    scene = Cloud()
    scene.apply(Trouble(fail_at=all_of("timeout_after")))
    scene.world.made[0].state = "archived"
    ended = scene.apply()
    assert ended.code == 1
    said = next(one for one in ended.findings if one.code == "create-unreadable")
    assert scene.world.made[0].id in said.detail
    assert len(scene.world.made) == 1
    scene.world.made[0].state = "ready"
    assert scene.apply().code == 0
    assert len(scene.world.made) == 1


def test_another_account_closes_nothing() -> None:
    scene = Scene("a")
    scene.apply(Trouble(fail_at=all_of("timeout_after")))
    ended = scene.apply(Trouble(wrong_account=True))
    assert ended.code == 1
    assert "other-instance" in [one.code for one in ended.findings]
    assert len(scene.state.open) == 1


def once_two_run(scene: Scene, times: int) -> Trouble:
    """An interrupt, ``times`` over, as soon as two actions were started."""
    asked: list[int] = []

    def look(number: int) -> None:
        if len(scene.of(ActionStarted)) == 2 and not asked:
            asked.append(number)
            for _ in range(times):
                scene.processes[-1].stop.request()

    return Trouble(hook=look)


def test_an_interrupt_lets_what_runs_finish_and_starts_nothing_new() -> None:
    scene = Scene("a", "b", "c")
    ended = scene.apply(once_two_run(scene, 1), parallelism=2)
    assert ended.code == 130
    assert scene.of(ActionStarted) == ["a.create", "b.create"] == sorted(scene.of(ActionDone))
    last = scene.events[-1]
    assert isinstance(last, RunFinished)
    assert last.interrupted
    assert scene.state.open == ()
    assert sorted(scene.state.sandboxes) == ["a", "b"]
    assert scene.apply().code == 0


def test_a_second_interrupt_stops_at_once_and_leaves_the_entries_open() -> None:
    scene = Scene("a", "b", "c")
    ended = scene.apply(once_two_run(scene, 2), parallelism=2)
    assert ended.code == 130
    failed = [e for e in scene.events if isinstance(e, ActionFailed)]
    assert [e.diagnostic.code for e in failed] == ["interrupted", "interrupted"]
    assert len(scene.state.open) == 2
    assert scene.apply().code == 0
    assert len(scene.world.made) == 3


def test_an_interrupted_first_apply_can_be_destroyed() -> None:
    scene = Scene("a", "b")
    scene.apply(Trouble(interrupt_at=(6, 7)))
    assert scene.world.boxes
    assert scene.apply(destroy=True).code == 0
    assert not scene.world.boxes
    assert (scene.state.servers, scene.state.sandboxes, scene.state.open) == ({}, {}, ())


def test_after_a_failed_journal_write_no_call_is_made() -> None:
    scene = Scene("a", "b", "c")
    at: list[int] = []

    def full(what: str, operation: int) -> bool:
        if what == "append" and len(scene.world.made) >= 2:
            at.append(requests(scene))
            raise OSError(errno.ENOSPC, "full")
        return False

    ended = scene.apply(Trouble(disk=full), parallelism=3)
    assert ended.code == 1
    assert [one.code for one in ended.findings] == ["state-unwritable"]
    assert requests(scene) <= at[0] + 3, "only what was under way"
    assert scene.apply().code == 0
    assert len([box for box in scene.world.made if not box.foreign]) == 3


def test_a_renderer_that_fails_stops_nothing() -> None:
    scene = Scene("a")
    process = Process(scene.machine)

    def broken(event: Event) -> None:
        raise BrokenPipeError

    process._emit = broken  # type: ignore[method-assign]
    assert process.apply(stack_of(scene.servers)).code == 0


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_actions_at_a_time_than_asked(limit: int) -> None:
    scene = Scene("a", "b", "c", "d", "e")
    scene.apply(parallelism=limit)
    running, most = 0, 0
    for event in scene.events:
        running += isinstance(event, ActionStarted)
        running -= isinstance(event, (ActionDone, ActionFailed))
        most = max(most, running)
    assert most <= limit + 1, "one may be told as done a moment after the next was begun"
    assert most >= limit


def test_a_saved_plan_goes_on_with_what_is_left() -> None:
    scene = Scene("a")
    scene.world.broken_setups = 1
    ended = scene.apply()
    assert ended.plan is not None
    process = Process(scene.machine)
    events: list[Event] = []
    process._emit = events.append  # type: ignore[method-assign]
    assert process.apply(stack_of(scene.servers), saved=ended.plan).code == 0
    assert [e.action.id for e in events if isinstance(e, ActionStarted)] == [
        "a.exec",
        "a.host-8000",
        "a.idle",
        "a.check",
    ]
    assert not scene.apply().plan.actions  # type: ignore[union-attr]


def test_a_restart_that_was_cut_in_half_is_finished_by_the_next_run() -> None:
    scene = Scene("a")
    scene.apply()
    scene.machine.values["a"] = {"TOKEN": "another-secret"}
    box = scene.world.made[0]
    seen: list[int] = []

    def interrupt(number: int) -> None:
        if box.state == "archived":
            seen.append(number)
        if len(seen) == 2:
            scene.processes[-1].stop.request()
            scene.processes[-1].stop.request()

    assert scene.apply(Trouble(hook=interrupt)).code == 130
    (entry,) = scene.state.open
    assert isinstance(entry, Entry)
    assert (entry.action.verb, entry.step) == ("restart", "stopped")
    ended = scene.apply()
    assert ended.code == 0
    assert "action-cut-short" in [one.code for one in ended.findings]
    assert (box.state, box.env["TOKEN"]) == ("ready", "another-secret")
    assert not scene.apply().plan.actions  # type: ignore[union-attr]


def test_a_port_that_was_hidden_unseen_is_found_by_the_check_and_hosted_again() -> None:
    scene = Cloud()
    scene.apply()
    scene.world.made[0].hosted.clear()
    scene.servers["a"] = replace(scene.servers["a"], args=("more",))
    ended = scene.apply()
    assert ended.code == 1
    assert scene.state.servers["a"].hosted is None
    assert scene.apply().code == 0
    assert 8000 in scene.world.made[0].hosted


def verbs(actions: Sequence[Action]) -> list[str]:
    return [one.verb for one in actions]


def test_resume_of_what_runs_again_sends_what_changed_all_the_same() -> None:
    scene = Scene("a")
    scene.apply()
    box = scene.world.made[0]
    box.state = "archived"
    scene.machine.values["a"] = {"TOKEN": "another-secret"}

    def started(number: int) -> None:
        if number == 3:
            box.state = "ready"

    ended = scene.apply(Trouble(hook=started))
    assert ended.plan is not None
    assert "resume" in verbs(ended.plan.actions)
    assert ended.code == 0
    assert box.env["TOKEN"] == "another-secret"
