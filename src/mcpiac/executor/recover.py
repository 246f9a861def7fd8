"""What an earlier run left open is resolved before anything else is done.

A create is in doubt: its sandbox is looked for by the owner marker, which only a create or a resume of ours can have
given. Exactly one is adopted; none means that the create may be sent again with its key while that is remembered
(the planner does so), or is lost; several, or some that cannot be read, are listed and left alone. Everything else is
idempotent: it is closed, and what is still to be done comes out of the next plan, which sees how things are.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from mcpiac.executor import effects
from mcpiac.model.action import Action, Entry
from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnostic, Severity
from mcpiac.model.live import STOPPED, USABLE, Found, Live, LiveView, Unreadable
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import Journal, Provider
from mcpiac.model.record import Effect, Instance, SandboxRecord, State
from mcpiac.wire import OWNER_VARIABLE

KEY_LIVES = timedelta(hours=1)
"""How long a create may be sent again with its key."""

SKEW = timedelta(minutes=10)
"""How far the provider's clock may be behind ours: a sandbox this much older than a create's begin is not its."""

READ_OWNER = shlex.join(
    ["sh", "-c", f"sed -n 's/^{OWNER_VARIABLE}=//p' /etc/sandboxer/env | tr -d '\"' | tr -d \"'\""]
)
"""Reads the marker in a guest where the list does not carry it. ``/etc/sandboxer/env`` is the service's own file."""

STARTING = 120.0
"""Seconds that a sandbox which may be ours is waited for until it can be asked."""

READING = 30.0
"""Seconds that reading a marker may take."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live sandbox that no record has. ``owner``: '' for one that has no marker, None for unreadable."""

    id: str
    owner: str | None
    why: str = ""


async def recover(
    journal: Journal,
    live: LiveView,
    provider: Provider,
    *,
    now: datetime,
    wanted: Collection[str] | None = None,
) -> tuple[Diagnostic, ...]:
    """Resolve every open entry that can be, and say what was found.

    ``live`` is a refresh made under the lock. ``wanted``: the servers that the stack still declares (None: all); a
    create of another one that is not found is closed. An *error* among the findings means that a sandbox of ours may
    be there unseen: nothing may be planned or done before that is cleared up. Plan after this, from its state.
    Raises ``JournalFailed``.
    """
    state = journal.state
    if not state.open:
        return ()
    here, recorded = live.instance, state.instance
    if here is not None and recorded is not None and here != recorded:
        return (_elsewhere(state, here, recorded),)
    findings: list[Diagnostic] = []
    creates = [entry for entry in state.open if entry.action.verb == "create"]
    unseen = [entry.found for entry in creates if entry.found is not None and entry.found not in live.sandboxes]
    if unseen and live.read:
        # Only a refresh that was asked for an id can say that it is gone.
        live = await provider.refresh([*(box.id for box in state.sandboxes.values()), *unseen])
    candidates = await _candidates(state, creates, live, provider) if creates and live.read else []
    for entry in state.open:
        if entry.action.verb != "create":
            await journal.end(entry, ok=False, effect=effects.NOTHING, note="to be planned again", plan_done=False)
            findings.append(_closed(state, entry))
        elif not live.read:
            said, hint = "what is live was not read", "run the command without --no-refresh"
            findings.append(_finding("error", "create-unreadable", state, entry, said, hint))
    if live.read:
        work = (_create(journal, entry, live, candidates, now, wanted, provider) for entry in creates)
        findings += await asyncio.gather(*work)
    return tuple(findings)


async def _create(
    journal: Journal,
    entry: Entry,
    live: LiveView,
    candidates: Sequence[Candidate],
    now: datetime,
    wanted: Collection[str] | None,
    provider: Provider,
) -> Diagnostic:
    state, action = journal.state, entry.action
    marker = action.payload["owner"]
    ours = [one.id for one in candidates if one.owner == marker]
    known = entry.found is not None and isinstance(live.sandboxes.get(entry.found), Found)
    if known and entry.found not in ours:
        ours.append(entry.found or "")
    if len(ours) == 1:
        found = await _started(live.sandboxes[ours[0]], action, provider)
        await journal.end(entry, ok=True, effect=adoption(action, found, live.instance, entry), note="adopted")
        said = f"sandbox {found.id} was made by an earlier run that did not end; it is recorded now"
        return _finding("note", "create-adopted", state, entry, said)
    if ours:
        said = f"an earlier run made more than one sandbox: {', '.join(sorted(ours))}"
        hint = f"see which is the right one, then: mcpiac adopt {Address(state.stack, action.server)} ID"
        return _finding("error", "create-ambiguous", state, entry, said, hint)
    doubtful = [one for one in candidates if one.owner is None and entry.found in (None, one.id)]
    if entry.found is not None and isinstance(live.sandboxes.get(entry.found), Unreadable):
        doubtful.append(Candidate(entry.found, None, "it could not be read"))
    if doubtful:
        listed = "\n".join(f"{one.id}: {one.why}" for one in doubtful)
        said = "whether an earlier run made its sandbox could not be found out"
        hint = "make these readable (start them) and run the command again, or delete them if nobody needs them"
        return _finding("error", "create-unreadable", state, entry, said, hint, detail=listed)
    young = now - _time(entry.began_at) <= KEY_LIVES
    if entry.found is None and young:
        server = state.servers.get(action.server)
        replaces = server is not None and server.sandbox != action.sandbox
        if not replaces and (wanted is None or action.server in wanted):
            return _finding("note", "create-again", state, entry, "it is sent again with its key")
        if not provider.traits.lists_owner:
            # Such a list may lag behind: what was made may still turn up in it.
            said = "no sandbox of it is seen yet; it is looked for again for an hour"
            return _finding("note", "create-watched", state, entry, said)
    await journal.end(entry, ok=False, effect=effects.NOTHING, note="lost", plan_done=False)
    return _finding("note", "create-lost", state, entry, "no sandbox came of it; the entry is closed")


def adoption(action: Action, found: Found, instance: Instance | None, entry: Entry) -> Effect:
    """The records of a sandbox whose create was cut short: nothing counts as applied, so all is set anew."""
    effect = effects.created(action, found, instance, None, {}, entry.began_at)
    sandboxes: Mapping[str, SandboxRecord | None] = {
        key: replace(box, name=found.name, stopped=False) for key, box in effect.sandboxes.items() if box is not None
    }
    return replace(effect, sandboxes=sandboxes)


async def _started(seen: Live, action: Action, provider: Provider) -> Found:
    """The sandbox once it is usable, or as it is where it does not become so: then the plan deals with it."""
    assert isinstance(seen, Found)
    if seen.state in USABLE or seen.state in STOPPED or seen.state == "error":
        return seen
    try:
        return await provider.wait(seen.id, timeout=action.payload["timeout"])
    except ProviderError:
        return seen


async def _candidates(state: State, creates: Sequence[Entry], live: LiveView, provider: Provider) -> list[Candidate]:
    """Unrecorded sandboxes that one of these creates could have made."""
    recorded = {box.id for box in state.sandboxes.values()}
    oldest = min(_time(entry.began_at) for entry in creates) - SKEW
    found: list[Candidate] = []
    for id, one in live.sandboxes.items():
        if id not in recorded and isinstance(one, Found):
            if one.owner is not None:
                found.append(Candidate(id, one.owner))
            elif not provider.traits.lists_owner and _may_be(one, oldest):
                found.append(await _read(one, provider))
    return found


def _may_be(one: Found, oldest: datetime) -> bool:
    """A name is set after the create's end, so one that has ours, or the user's, is none of these."""
    if one.name.startswith("mcp-"):
        return False
    return not one.created_at or _time(one.created_at) >= oldest


async def _read(one: Found, provider: Provider) -> Candidate:
    if one.state in STOPPED or one.state == "error":
        return Candidate(one.id, None, f"it is {one.state}, so its owner cannot be read")
    try:
        if one.state not in USABLE:
            await provider.wait(one.id, timeout=STARTING)
        result = await provider.run(one.id, READ_OWNER, timeout=READING)
    except ProviderError as fault:
        return Candidate(one.id, "" if fault.kind == "not_found" else None, str(fault))
    if result.exit_code != 0:
        return Candidate(one.id, None, "its environment could not be read")
    return Candidate(one.id, result.stdout.strip())


def _elsewhere(state: State, here: Instance, recorded: Instance) -> Diagnostic:
    return Diagnostic(
        "error",
        "other-instance",
        f"an earlier run of {state.stack} was cut short at {recorded.provider} {recorded.id}, "
        f"and this is {here.provider} {here.id}",
        detail="what it left there cannot be looked for here; nothing was done",
        hint="use the account, address or machine of that run, and apply there first",
    )


def _closed(state: State, entry: Entry) -> Diagnostic:
    far = f", which had come to `{entry.step}`" if entry.step else ""
    return _finding(
        "note", "action-cut-short", state, entry, f"an earlier run was cut short in {entry.action.verb}{far}"
    )


def _finding(
    severity: Severity, code: str, state: State, entry: Entry, said: str, hint: str = "", detail: str = ""
) -> Diagnostic:
    address = str(Address(state.stack, entry.action.server))
    text = said if code == "action-cut-short" else f"{entry.action.verb} begun at {entry.began_at}: {said}"
    return Diagnostic(severity, code, text, address=address, hint=hint, detail=detail)


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
