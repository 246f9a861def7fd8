"""Changes to records by hand: another name, forgotten, taken in. They go through the journal like everything else."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from mcpiac.model.action import Action
from mcpiac.model.diagnostic import error
from mcpiac.model.live import Found
from mcpiac.model.ports import Journal
from mcpiac.model.record import Effect, Instance, SandboxRecord, ServerRecord


async def move(journal: Journal, old: str, new: str) -> None:
    """``state mv``: a server's record goes on under another name; its sandbox and everything in it stay."""
    server = _recorded(journal, old)
    if journal.server(new) is not None:
        raise error("move-target-exists", f"{new} is recorded already", hint=f"mcpiac state rm {new} forgets it")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", new) or len(new) > 40:
        raise error("bad-name", f"{new!r} is no name of a server", hint="small letters, digits, single hyphens")
    box = journal.sandbox(server.sandbox)
    # Fingerprints are made over the server's name: under another one they say nothing.
    boxes = {server.sandbox: replace(box, secrets={})} if box is not None else {}
    await _change(journal, new, f"was {old}", Effect(boxes, {old: None, new: server}), server.sandbox)


async def remove(journal: Journal, server: str) -> SandboxRecord | None:
    """``state rm``: forget a server; its sandbox goes on running, as an orphan. The answer is what is forgotten."""
    record = _recorded(journal, server)
    shared = [n for n, one in journal.state.servers.items() if one.sandbox == record.sandbox and n != server]
    boxes: dict[str, SandboxRecord | None] = {} if shared else {record.sandbox: None}
    box = journal.sandbox(record.sandbox)
    await _change(journal, server, "forgotten", Effect(boxes, {server: None}), record.sandbox)
    return box


async def adopt(
    journal: Journal, server: str, found: Found, instance: Instance, *, key: str, variable: str, port: int
) -> None:
    """``adopt SERVER ID``: record a live sandbox that the user named. Nothing counts as applied: the next plan sets
    it all anew, the owner marker too. ``key`` is used where the sandbox has no marker of this server yet."""
    state = journal.state
    if journal.server(server) is not None:
        raise error(
            "already-recorded", f"{server} has a sandbox already", hint=f"mcpiac state rm {server} forgets it"
        )
    other = next((k for k, box in state.sandboxes.items() if box.id == found.id), None)
    if other is not None:
        raise error("already-recorded", f"sandbox {found.id} is recorded as {other}")
    if state.instance is not None and state.instance != instance and state.sandboxes:
        raise error("other-instance", f"the state is of {state.instance.id}, and this is {instance.id}")
    taken = next((name for name, one in state.servers.items() if one.variable == variable), None)
    if taken is not None:
        raise error("variable-taken", f"the variable {variable} belongs to {taken}")
    parts = (found.owner or "").split("/")
    ours = len(parts) == 3 and parts[:2] == [state.lineage, server]
    key = parts[2] if ours else key
    box = SandboxRecord(
        id=found.id,
        key=key,
        owner=f"{state.lineage}/{server}/{key}",
        created_at=found.created_at,
        name=found.name,
        size=found.size or "small",
        tainted="adopted",
    )
    # Inside, its service has the name of the server that it was made for (``record.service_name``).
    born = parts[1] if len(parts) == 3 and parts[0] == state.lineage else server
    name = born if born not in state.sandboxes else f"{born}.{found.id}"
    record = ServerRecord(sandbox=name, spec={}, variable=variable, port=port)
    for entry in state.open:
        if entry.action.verb == "create" and entry.action.server == server:
            await journal.end(entry, ok=False, effect=Effect(), note="adopted by hand", plan_done=False)
    await _change(journal, server, f"adopted {found.id}", Effect({name: box}, {server: record}, instance), name)


def _recorded(journal: Journal, server: str) -> ServerRecord:
    record = journal.server(server)
    if record is None:
        have = ", ".join(sorted(journal.state.servers)) or "none"
        raise error("no-such-server", f"{server} is not recorded; recorded: {have}")
    return record


async def _change(journal: Journal, server: str, summary: str, effect: Effect, sandbox: str) -> None:
    action = Action(f"{server}.by-hand", server, "record", sandbox, summary)
    entry = await journal.begin(action, plan="", at=datetime.now(UTC).isoformat(timespec="milliseconds"))
    await journal.end(entry, ok=True, effect=effect, note=summary)
