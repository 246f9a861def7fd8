"""What must hold after every step, whatever happened."""

from __future__ import annotations

import base64
import copy
from urllib.parse import quote

from tests.sim.client import STACK, Machine
from tests.sim.world import CANARY, USABLE, Box

from mcpiac.model.record import State
from mcpiac.model.spec import ServerSpec
from mcpiac.state.store import Store


def _base64(before: int) -> str:
    """The middle of the canary as it stands in base64 of a longer text."""
    text = base64.b64encode(b"x" * before + CANARY.encode()).decode()
    return text[4 if before else 0 :].rstrip("=")[:-2]


_CANARIES = (CANARY, quote(CANARY), *(_base64(before) for before in range(3)))
"""The canary raw, in URL form, and in base64 at each offset."""


def loads(store: Store) -> State | None:
    """The state loads, its rules hold (reading checks them)."""
    return store.read(STACK)


def nothing_lost(machine: Machine, state: State | None, lineage: str | None) -> None:
    """Whatever is live and ours is in the records or in an open entry."""
    if lineage is None:
        return
    ids = {box.id for box in state.sandboxes.values()} if state else set()
    keys = {e.action.key for e in state.open if e.action.verb == "create"} if state else set()
    for box in machine.world.ours(lineage):
        marked = (box.owner or "").rpartition("/")[2]
        assert box.id in ids or marked in keys, f"{box.id} ({box.owner}) is live and in no record"


def nothing_twice(machine: Machine, state: State | None, lineage: str | None) -> None:
    """No key made two living sandboxes; beside the one that a server uses, at most one old one is left."""
    if state is None or lineage is None:
        return
    live = machine.world.ours(lineage)
    keys = [box.key for box in live]
    assert len(keys) == len(set(keys)), "a key made two sandboxes"
    used = {state.sandboxes[one.sandbox].id for one in state.servers.values()}
    spare: dict[str, list[str]] = {}
    for box in live:
        if box.id not in used:
            spare.setdefault((box.owner or "").split("/")[1], []).append(box.id)
    for server, ids in spare.items():
        assert len(ids) <= 2, f"{server} has sandboxes {ids} beside its own"


def nobody_else_touched(before: dict[str, Box], machine: Machine) -> None:
    """Somebody else's sandboxes are as they were."""
    for id, box in before.items():
        assert machine.world.boxes.get(id) == box, f"the foreign sandbox {id} was touched"


def foreign(machine: Machine) -> dict[str, Box]:
    """Copies of what is not ours."""
    return {id: copy.deepcopy(box) for id, box in machine.world.boxes.items() if box.foreign}


def nothing_told(machine: Machine) -> None:
    """No secret and no token in any file, event, finding or message."""
    files = [(str(path), node.data.decode("utf-8", "replace")) for path, node in machine.platter.names.items()]
    shown, machine.shown = machine.shown, []
    for where, text in [*files, *(("shown", text) for text in shown)]:
        for form in _CANARIES:
            assert form not in text, f"{where} holds a secret: …{text[max(0, text.find(form) - 200) :][:300]}"


def as_declared(machine: Machine, state: State, servers: dict[str, ServerSpec]) -> None:
    """After a run that said all is well: what is there is what was asked for."""
    world = machine.world
    assert set(state.servers) == {name for name, spec in servers.items() if not spec.disabled} | (
        set(state.servers) & {name for name, spec in servers.items() if spec.disabled}
    )
    for name, spec in servers.items():
        if name not in state.servers:
            assert spec.disabled
            continue
        record = state.servers[name]
        box = world.boxes[state.sandboxes[record.sandbox].id]
        expired = box.deadline is not None and box.deadline <= world.clock.time()
        if expired:
            continue
        if spec.disabled:
            assert box.state in ("archived", "error"), f"{name} is disabled and {box.state}"
            continue
        assert box.state in USABLE, f"{name} is {box.state}"
        given = {key: value for key, value in box.env.items() if key != "MCPIAC_OWNER"}
        assert given == {key: machine.values[name][key] for key in spec.secrets}, f"{name} has another environment"
        assert box.owner is not None
        assert box.owner.endswith(f"/{state.sandboxes[record.sandbox].key}")
        assert box.size == spec.size
        assert (box.deadline is None) == (spec.ttl is None), f"{name}: deadline {box.deadline}, ttl {spec.ttl}"
        hosted = {port: (item["access"], item["title"] or "") for port, item in box.hosted.items()}
        wanted = {record.port: (spec.access, spec.title)} if spec.hosted else {}
        if world.extended:
            assert hosted == wanted, f"{name} hosts {hosted}, wanted {wanted}"
            assert box.idle == (spec.idle or 0), f"{name} pauses after {box.idle}, wanted {spec.idle}"
        for path, file in spec.files.items():
            assert box.files.get(path) == (file.content or "").encode(), f"{name}: {path}"
        for argument in spec.args:
            assert f'"{argument}"' in box.service, f"{name} runs {box.service}"
        for key, value in spec.env.items():
            assert f'"{key}": "{value}"' in box.service, f"{name} runs {box.service}"
