"""Collects what one recorded server needs: steps, fields and reasons, and lastly the decision made of them."""

from __future__ import annotations

from collections.abc import Iterable

from mcpiac.model.change import Change, FieldChange, Kind
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.record import Fingerprint
from mcpiac.planner import diff, payloads, steps, words
from mcpiac.planner.context import Case, Context
from mcpiac.planner.fields import Lead, leads, settled_by
from mcpiac.planner.order import Step
from mcpiac.planner.remove import leftovers
from mcpiac.planner.result import Decision
from mcpiac.planner.traces import SecretDiff


class Work:
    """Of one server in one plan. ``names``: the fields whose declared value is not the one last applied."""

    def __init__(self, ctx: Context, case: Case, names: Iterable[str], secrets: SecretDiff) -> None:
        self.ctx = ctx
        self.case = case
        self.secrets = secrets
        self.record, self.sandbox = case.known
        self.key, self.id = self.record.sandbox, self.sandbox.id
        sent = "secrets" in self.record.spec
        self.names = [*names, *(["secrets"] if secrets.changed or secrets.moved or not sent else [])]
        self.steps: list[Step] = []
        self.fields: list[FieldChange] = []
        self.reasons: list[str] = []
        self.diagnostics: list[Diagnostic] = []
        self.drift = False
        self.idle_unset = False

    def leading_to(self, lead: Lead) -> list[str]:
        """Changed fields whose change leads to this."""
        return [name for name in self.names if lead in leads(name, self.ctx.traits)]

    def settles(self, lead: Lead) -> list[str]:
        """Changed fields that this lead's action settles."""
        return [name for name in self.names if settled_by(name, lead)]

    def drifted(self, *found: tuple[FieldChange, str] | None) -> bool:
        """Take up drift; whether there was any."""
        seen = [one for one in found if one is not None]
        self.fields += [change for change, _ in seen]
        self.reasons += [sentence for _, sentence in seen]
        self.drift = self.drift or bool(seen)
        return bool(seen)

    def explain(self, names: Iterable[str]) -> tuple[FieldChange, ...]:
        """Take up declared changes; the answer is what was taken up."""
        names = tuple(names)
        case = self.case
        parts = diff.explain(
            tuple(name for name in names if name != "secrets"), case.view, self.record, self.sandbox, case.port
        )
        if "secrets" in names and "secrets" in self.record.spec:
            parts += diff.secret_fields(self.secrets.changed)
            parts += diff.source_fields(self.secrets.moved, case.view, self.record)
        self.fields += parts
        heads = dict.fromkeys(part.path.split(".")[0].split("[")[0] for part in parts)
        if heads:
            self.reasons.append(f"{words.names(heads)} changed")
        return parts

    def settle_rest(self, names: Iterable[str]) -> None:
        """What of these no step settles goes into the record alone."""
        done = {name for step in self.steps for name in step.payload.get("settles", ())}
        rest = [name for name in names if name not in done]
        if rest:
            self.steps.append(steps.record(self.key, self.id, payloads.settle(rest), words.names(rest)))

    def name_it(self) -> None:
        """The move of the record, and the display name at the provider."""
        moved = self.case.moved
        if moved is not None:
            self.steps.append(move_step(self.ctx, self.case, self.secrets))
            self.reasons.insert(0, f"moved from {moved}")
        if self.sandbox.name != steps.sandbox_name(self.ctx, self.case.name):
            self.steps.append(steps.rename(self.ctx, self.case, self.key, self.id))
            if moved is None:
                self.reasons.append("its name at the provider is not set yet")

    def finish(self, *, checked: bool) -> Decision:
        """The decision. ``checked``: a real request at the end, if anything acted."""
        ctx, case = self.ctx, self.case
        self.name_it()
        if checked and any(step.verb != "record" for step in self.steps):
            self.steps.append(steps.check(case, self.key, self.id))
        left = leftovers(ctx, case.name)
        if left:
            self.reasons.append("a sandbox of an unfinished replace is left")
        kind: Kind = "update" if self.steps or left else "noop"
        if case.moved is not None and all(
            step.verb in ("record", "rename", "check") for step in (*self.steps, *left)
        ):
            kind = "move"
        return Decision(
            Change(case.name, kind, "; ".join(self.reasons), tuple(self.fields), self.drift, case.moved),
            (*self.steps, *left),
            case.spec,
            (*self.diagnostics, *unset_notes(ctx, case, self.steps, self.secrets.unset)),
            self.secrets.unknown,
            self.idle_unset,
        )


def move_step(ctx: Context, case: Case, secrets: SecretDiff) -> Step:
    """The record goes on under the new name, with the traces of the secrets that are known to be the same."""
    current = ctx.fingerprints.get(case.name) or {}
    sandbox, key = case.sandbox, case.record.sandbox if case.record is not None else ""
    doubtful = {*secrets.changed, *secrets.unknown}
    sent = sandbox.secrets if sandbox is not None else {}
    kept: dict[str, Fingerprint | None] = {
        name: current.get(name) for name in sent if name not in doubtful and name in case.spec.secrets
    }
    target = sandbox.id if sandbox is not None else None
    return steps.record(key, target, payloads.move(case.moved or "", kept), f"was {case.moved}")


def unset_notes(ctx: Context, case: Case, made: Iterable[Step], unset: Iterable[str]) -> tuple[Diagnostic, ...]:
    """Secrets that a step would send and that have no value now."""
    names = list(unset)
    if not names or not any(step.verb in ("create", "resume", "restart") for step in made):
        return ()
    return tuple(
        ctx.diagnostic(
            "note",
            "secret-unset",
            case.name,
            f"{name} has no value now ({case.spec.secrets[name].source}); apply needs it",
            key="secrets",
            hint=_set_hint(case.spec.secrets[name].source),
        )
        for name in names
    )


def _set_hint(source: str) -> str:
    kind, _, rest = source.partition(":")
    return f"export {rest}=…" if kind == "env" else f"make {source} give a value"
