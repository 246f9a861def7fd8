"""What a run says at its end: what is up and where, or what failed, what was skipped, and how to go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mcpiac.model.codec import plain
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.event import ActionDone, ActionFailed, ActionSkipped, Event, RunFinished, RunStarted
from mcpiac.model.plan import Plan
from mcpiac.model.record import State
from mcpiac.ui import diagnostics, escape
from mcpiac.ui.screen import paint
from mcpiac.ui.table import columns
from mcpiac.ui.text import only_drifted, wrap
from mcpiac.ui.words import count, listed, span

DONE = {
    "create": "created",
    "update": "updated",
    "drift": "mended",
    "replace": "replaced",
    "delete": "destroyed",
    "move": "moved",
    "forget": "forgotten",
}


@dataclass(slots=True)
class Tally:
    """Collects the events of a run over one stack; ``total`` counts what it was to do, ``finished`` is the last.
    ``faults`` ended the run itself (the journal could not be written); ``cut``: it was stopped at once."""

    plan: Plan
    total: int = 0
    done: list[ActionDone] = field(default_factory=list)
    failed: list[ActionFailed] = field(default_factory=list)
    skipped: list[ActionSkipped] = field(default_factory=list)
    finished: RunFinished | None = None
    faults: list[Diagnostic] = field(default_factory=list)
    cut: bool = False

    def take(self, event: Event) -> None:
        """Keep what the report needs of an event."""
        if isinstance(event, RunStarted):
            self.total = len(event.actions)
        elif isinstance(event, ActionDone):
            self.done.append(event)
        elif isinstance(event, ActionFailed):
            self.failed.append(event)
        elif isinstance(event, ActionSkipped):
            self.skipped.append(event)
        elif isinstance(event, RunFinished):
            self.finished = event

    @property
    def well(self) -> bool:
        """Everything that was planned happened."""
        return self.finished is not None and not (self.failed or self.skipped or self.faults or self.cut)


def report(tallies: Sequence[Tally], seconds: float, again: str, colour: bool = False) -> str:
    """``Done in 6.3 s: …``, or what stands in the way. ``again`` is the command that goes on after a failure."""
    actions = sum(t.total for t in tallies)
    done = sum(len(t.done) for t in tallies)
    if all(t.well for t in tallies):
        kinds: Counter[str] = Counter()
        for tally in tallies:
            kinds.update(_kinds(tally.plan))
        told = ", ".join(f"{kinds[k]} {w}" for k, w in DONE.items() if kinds[k])
        tail = f": {told}." if told else "."
        said = f"Done in {span(seconds)}{tail} {done} of {count(actions, 'action')}."
        return "\n".join(wrap(said)).replace("Done", paint("Done", "green", colour), 1)
    parts = []
    failures = [_with_log(f) for t in tallies for f in t.failed] + [d for t in tallies for d in t.faults]
    if failures:
        parts.append(diagnostics.render(failures, colour))
    stopped = any(t.cut or (t.finished is not None and t.finished.interrupted) for t in tallies)
    doubtful = [f"{f.stack}/{f.action.server}" for t in tallies for f in t.failed if f.in_doubt]
    waiting: dict[str, list[str]] = {}
    for tally in tallies:
        for skip in tally.skipped:
            waiting.setdefault(skip.because, []).append(f"{skip.action.server} {skip.action.verb}")
    untried = []
    for because, names in waiting.items():
        why = "the run was interrupted" if because == "interrupted" else because
        untried += wrap(f"Not tried, since {escape.line(why)}: {escape.line(', '.join(names))}.")
    if untried:
        parts.append("\n".join(untried))
    if doubtful:
        parts.append(f"In doubt: {listed(doubtful)}; the next run finds out what happened.")
    failed = sum(len(t.failed) for t in tallies)
    head = paint("Interrupted", "yellow", colour) if stopped else paint("Failed", "red", colour)
    parts.append(
        f"{head} after {span(seconds)}: {done} of {count(actions, 'action')} done, {failed} failed.\n"
        f"What was done is recorded. Go on with:  {again}"
    )
    return "\n\n".join(parts)


def _with_log(event: ActionFailed) -> Diagnostic:
    """Where a server did not come up, its own log is the next thing to read."""
    d = event.diagnostic
    if event.action.verb not in ("exec", "check") or event.in_doubt:
        return d
    line = f"Its log:  mcpiac logs {event.stack}/{event.action.server}"
    return replace(d, hint=f"{d.hint}\n{line}" if d.hint else line)


def urls(states: Sequence[State], only: Mapping[str, set[str]] | None = None) -> str:
    """The servers that are hosted: name, URL without token, and the variable that holds the token."""
    rows = []
    for state in states:
        for name, record in sorted(state.servers.items()):
            if record.hosted is None or (only is not None and name not in only.get(state.stack, set())):
                continue
            shown = name if len(states) == 1 else f"{state.stack}/{name}"
            token = "public" if record.hosted.access == "public" else f"{record.variable}_MCP_AUTH"
            rows.append((shown, record.endpoint or "", token))
    return "\n".join(columns(rows))


CONNECT = 'Connect Claude Code:  mcpiac connect --print claude-code\nTokens:               eval "$(mcpiac env)"'


def as_data(tallies: Sequence[Tally], states: Sequence[State], seconds: float) -> dict[str, Any]:
    """The report as data: counts, and the URLs without token."""
    return {
        "ok": all(t.well for t in tallies),
        "interrupted": any(t.cut or (t.finished is not None and t.finished.interrupted) for t in tallies),
        "seconds": round(seconds, 3),
        "actions": sum(t.total for t in tallies),
        "done": sum(len(t.done) for t in tallies),
        "failed": sum(len(t.failed) for t in tallies),
        "skipped": sum(len(t.skipped) for t in tallies),
        "diagnostics": [plain(d) for t in tallies for d in t.faults],
        "servers": [
            {"stack": state.stack, "server": name, "url": r.endpoint, "variable": r.variable}
            for state in states
            for name, r in sorted(state.servers.items())
        ],
    }


def _kinds(plan: Plan) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for change in plan.changes:
        if change.kind in DONE:
            kinds["drift" if only_drifted(change) else change.kind] += 1
    return kinds
