"""Plans as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.plan import Plan
from mcpiac.ui import escape
from mcpiac.ui.text import SYMBOL, field_text, only_drifted, servers, tally
from mcpiac.ui.words import count


def plans(values: Sequence[Plan]) -> str:
    """A section per stack: a headline that counts, a table of servers, the findings."""
    return "\n\n".join(_section(p) for p in values)


def _section(plan: Plan) -> str:
    changed = [c for c in plan.changes if c.kind != "noop"]
    title = f"### mcpiac plan: {escape.markdown_code(plan.stack)}"
    if not plan.pending and not changed:
        parts = [title, f"No changes. {count(len(servers(plan)), 'server')} as declared."]
        return "\n\n".join(parts + _findings(plan.diagnostics))
    kinds = tally([plan])
    words = {"create": "to create", "update": "to update", "drift": "drifted", "replace": "to replace"}
    words |= {"delete": "to destroy", "move": "moved", "forget": "to forget", "blocked": "blocked"}
    told = ", ".join(f"{kinds[k]} {w}" for k, w in words.items() if kinds[k]) or "only the record changes"
    rows = ["| | server | what | steps |", "|---|---|---|---|"]
    for change in changed:
        drifted = only_drifted(change)
        symbol = "!" if drifted else SYMBOL[change.kind]
        what = "drifted" if drifted else change.kind
        reason = f": {escape.markdown(change.reason)}" if change.reason else ""
        details = "".join(f"<br>{escape.markdown_code(field_text(f))}" for f in change.fields)
        steps = "<br>".join(
            f"**{a.verb}** {escape.markdown(a.summary)}".rstrip()
            for a in plan.actions
            if a.server == change.server and a.verb != "check"
        )
        rows.append(f"| `{symbol}` | {escape.markdown_code(change.server)} | {what}{reason}{details} | {steps} |")
    where = f"{escape.markdown(plan.provider)}, state serial {plan.base_serial}"
    parts = [title, f"**{told}** ({count(len(plan.actions), 'action')}; {where})", "\n".join(rows)]
    return "\n\n".join(parts + _findings(plan.diagnostics))


def _findings(diagnostics: Sequence[Diagnostic]) -> list[str]:
    if not diagnostics:
        return []
    lines = []
    for d in diagnostics:
        about = f" {escape.markdown_code(d.address)}" if d.address else ""
        more = " ".join(part for part in (d.detail, d.hint) if part)
        lines.append(f"- **{d.severity}**{about}: {escape.markdown(d.summary)} {escape.markdown(more)}".rstrip())
    return ["\n".join(lines)]
