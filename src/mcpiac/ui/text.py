"""A plan as text: 80 columns, readable without colour, each server with what differs and the steps that mend it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mcpiac.model.action import Action
from mcpiac.model.change import Change, FieldChange
from mcpiac.model.plan import Plan
from mcpiac.ui import escape
from mcpiac.ui.screen import paint
from mcpiac.ui.words import count, span

SYMBOL = {
    "create": "+",
    "update": "~",
    "replace": "-/+",
    "delete": "-",
    "move": ">",
    "forget": "x",
    "blocked": "?",
}
STYLE = {
    "create": "green",
    "update": "yellow",
    "replace": "red",
    "delete": "red",
    "move": "cyan",
    "forget": "cyan",
    "blocked": "red",
}
WIDTH = 80


def plan(value: Plan, colour: bool = False) -> str:
    """One stack's part: a header and a block per server that changes, or one line when none does."""
    changed = [c for c in value.changes if c.kind != "noop"]
    steps = _by_server(value.actions)
    others = sorted(set(steps) - {c.server for c in changed})
    if not changed and not others:
        return _unchanged(value)
    total = count(len(servers(value)), "server")
    live = f"live read {span(value.live_seconds)}" if value.live_read else "live not read"
    serial = f"state serial {value.base_serial}" if value.base_serial else "no state yet"
    name = paint(escape.line(value.stack), "bold", colour)
    lines = [f"{name}  {escape.line(value.provider)} · {total} · {serial} · {live}"]
    wide = max(escape.width(c.server) for c in changed) if changed else 0
    for change in changed:
        lines += ["", *_change(change, steps.get(change.server, []), max(wide, 12), colour)]
    for server in others:
        quiet = Change(server, "update", "nothing that runs changes")
        lines += ["", *_change(quiet, steps[server], max(wide, 12), colour)]
    return "\n".join(lines)


def totals(plans: Sequence[Plan]) -> str:
    """``Plan: 1 to create, …`` over all stacks of the run, or '' when nothing would change."""
    if not any(p.actions for p in plans):
        return ""
    kinds = tally(plans)
    parts = [f"{kinds['create']} to create", f"{kinds['update']} to update"]
    for kind, words in (("drift", "drifted"), ("move", "moved"), ("forget", "to forget"), ("blocked", "blocked")):
        if kinds[kind]:
            parts.append(f"{kinds[kind]} {words}")
    parts += [f"{kinds['replace']} to replace", f"{kinds['delete']} to destroy"]
    actions = sum(len(p.actions) for p in plans)
    return "\n".join(wrap(f"Plan: {', '.join(parts)} ({count(actions, 'action')})."))


def tally(plans: Sequence[Plan]) -> Counter[str]:
    """How many servers per kind of change; one that only drifted counts as ``drift``."""
    kinds: Counter[str] = Counter()
    for each in plans:
        for change in each.changes:
            if change.kind != "noop":
                kinds["drift" if only_drifted(change) else change.kind] += 1
    return kinds


def servers(value: Plan) -> set[str]:
    """The servers that a plan speaks of."""
    return {c.server for c in value.changes} | {a.server for a in value.actions} | set(value.desired)


def _unchanged(value: Plan) -> str:
    known = servers(value)
    if not known and (value.options.target or value.options.exclude or value.options.labels):
        return f"{escape.line(value.stack)}  No changes. None of its servers was chosen."
    if not known:
        return f"{escape.line(value.stack)}  No changes. Nothing is declared and nothing is recorded."
    parts = [f"{count(len(known), 'server')} as declared"]
    if value.live_read:
        parts += [f"{n} {word}" for n, word in ((value.running, "running"), (value.paused, "paused")) if n]
    else:
        parts.append("live not read")
    return f"{escape.line(value.stack)}  No changes. {', '.join(parts)}."


def _change(change: Change, actions: list[Action], wide: int, colour: bool) -> list[str]:
    drifted = only_drifted(change)
    symbol, style = ("!", "yellow") if drifted else (SYMBOL[change.kind], STYLE[change.kind])
    word = "drifted" if drifted else change.kind
    headline = word if not change.reason else f"{word}: {change.reason}"
    if change.kind == "move" and change.moved_from and change.moved_from not in change.reason:
        headline += f" (was {change.moved_from})"
    if change.kind == "replace" and "disk" not in headline:
        headline += "; its disk and URL are lost"
    name = escape.line(change.server)
    head = f"{symbol:>3} {name}{' ' * (wide - escape.width(name))}  "
    first, *rest = wrap(escape.line(headline), width=WIDTH - escape.width(head))
    lines = [head.replace(symbol, paint(symbol, style, colour), 1) + first]
    lines += [" " * escape.width(head) + part for part in rest]
    verbs = {a.verb for a in actions}
    for action in actions:
        if (action.verb == "rename" and "create" in verbs) or (action.verb == "record" and change.kind == "move"):
            continue  # goes without saying
        lines += wrap(escape.line(action.summary), f"      {action.verb:<8} ", " " * 15)
    said = " ".join(escape.line(a.summary) for a in actions)
    for field in change.fields:
        sides = f"{value_text(field.before)} → {value_text(field.after)}"
        if _TOLD_BY.get(field.path.split(".")[0]) not in verbs and sides not in said:
            lines += wrap(field_text(field), "      · ", " " * 10)
    return lines


def field_text(field: FieldChange) -> str:
    """``args: ["a"] → ["b"]``; a secret shows that it changed and nothing else."""
    path = escape.line(field.path)
    if field.secret:
        return f"{path}: changed"
    before, after = value_text(field.before), value_text(field.after)
    told = f"{before} → {after}" if before != after else "changed"
    return f"{path}: {told}" + (" (live)" if field.drift else "")


def value_text(value: Any) -> str:
    """A value as a stack file would show it, on one line, cut where it is long."""
    if value is None or value in ("", {}, [], ()):
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape.cut(escape.line(value), 60)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict) and "sha256" in value:
        return f"{value.get('bytes', '?')} bytes, {str(value['sha256'])[:8]}"
    return escape.cut(escape.line(json.dumps(value, ensure_ascii=False, default=str)), 60)


_TOLD_BY = {
    "idle": "idle",
    "ttl": "ttl",
    "port": "host",
    "hosted": "host",
    "access": "host",
    "title": "host",
    "secrets": "restart",
    "size": "restart",
    "egress": "restart",
}
"""Field → the verb whose own line tells its change already."""


def only_drifted(change: Change) -> bool:
    """A server that nobody changed in the file: live alone differs."""
    return change.drift and change.kind in ("update", "create") and all(f.drift for f in change.fields)


def _by_server(actions: Sequence[Action]) -> dict[str, list[Action]]:
    """The actions that a reader sees: the final check of each chain goes without saying."""
    steps: dict[str, list[Action]] = {}
    for action in actions:
        shown = steps.setdefault(action.server, [])
        if action.verb != "check":
            shown.append(action)
    return steps


def wrap(text: str, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    """A text as lines of at most ``width`` columns, no word broken; ``first`` and ``rest`` stand before them."""
    lines = textwrap.wrap(
        text.replace(" ·", "\u00a0·"),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines] or [first.rstrip()]


def joined(blocks: Sequence[str]) -> str:
    """The parts of several stacks: one-line parts stand together, longer ones get free lines around them."""
    text = ""
    for number, part in enumerate(blocks):
        if number:
            text += "\n\n" if "\n" in part or "\n" in blocks[number - 1] else "\n"
        text += part
    return text
