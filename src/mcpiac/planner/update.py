"""A server that is declared and recorded, whose sandbox exists: the steps that make it as declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as with_values
from typing import Literal

from mcpiac.model.change import FieldChange
from mcpiac.planner import create, diff, steps, traces, words
from mcpiac.planner.context import Case, Context
from mcpiac.planner.fields import ignored, in_place, keep_ignored, leads, never_done
from mcpiac.planner.replace import replace
from mcpiac.planner.result import Decision
from mcpiac.planner.traces import SecretDiff
from mcpiac.planner.work import Work

DOWN = "about 2 s down"


def update(ctx: Context, declared: Case) -> Decision:
    """What this server needs, asleep or awake; a new sandbox where a change asks for one."""
    record, sandbox = declared.known
    case = declared
    if declared.spec.lifecycle.ignore:
        spec, view = keep_ignored(declared.spec, declared.view, record.spec)
        port = record.port if "port" in ignored(spec) else declared.port
        case = with_values(declared, spec=spec, view=view, port=port)
    names = diff.changed(case.view, record, sandbox, case.port)
    work = Work(ctx, case, names, _secrets(ctx, case))
    anew = [name for name in work.names if leads(name, ctx.traits) == ("replace",) and not _never(work, name)]
    if not case.spec.disabled and (anew or case.name in ctx.replaced or case.look.standing == "elsewhere"):
        return replace(ctx, declared, work.explain(anew), anew)
    if case.spec.disabled:
        return _disabled(work)
    renewed = ctx.options.renew or case.spec.lifecycle.on_expiry == "resume"
    if case.look.standing == "expired" and not renewed:
        return _left(work)
    return _awake(work)


def _secrets(ctx: Context, case: Case) -> SecretDiff:
    """Traces are made over the server's address, so those of a moved server are asked for under its old name."""
    if "secrets" in ignored(case.spec):
        return traces.NOTHING
    record, sandbox = case.known
    current = ctx.fingerprints.get(case.moved or case.name)
    return traces.compare(case.spec.secrets, record.spec.get("secrets"), sandbox.secrets, current)


def _disabled(work: Work) -> Decision:
    """Hidden and stopped, disk kept; what else changed waits until it is enabled."""
    case, ctx = work.case, work.ctx
    if case.look.standing == "elsewhere":
        work.reasons.append("disabled; it gets its new sandbox when it is enabled")
        return work.finish(checked=False)
    if case.name in ctx.replaced:
        work.diagnostics.append(
            ctx.diagnostic(
                "warning",
                "replace-disabled",
                case.name,
                f"{case.name} is disabled, so --replace does nothing to it",
                hint="remove `disabled: true` first",
            )
        )
    turned = [name for name in work.names if name == "disabled"]
    noted = work.leading_to("record")
    work.explain([*turned, *noted])
    live = case.look.hosted
    work.drifted(*diff.hosted_drift(case.spec, work.record.hosted, live, None))
    ports = {*(live or ()), *([work.record.hosted.port] if work.record.hosted is not None else [])}
    for port in sorted(ports):
        work.steps.append(steps.hide(work.key, port, work.id, "disabled"))
    started = case.look.standing == "up"
    if started and work.sandbox.stopped:
        work.drifted((FieldChange("state", "running", "stopped", drift=True), "it was started, though disabled"))
    if turned or started or not work.sandbox.stopped:
        work.steps.append(steps.stop(case, work.key, "disabled; its disk is kept", turned))
    work.settle_rest(noted)
    _wait(work, "disabled", "they are made when `disabled: true` is removed", [*turned, *noted])
    return work.finish(checked=False)


def _left(work: Work) -> Decision:
    """Its deadline passed and it is left so; what else changed waits until it is renewed."""
    noted = work.leading_to("record")
    work.explain(noted)
    work.settle_rest(noted)
    _wait(work, "its ttl ended", "`mcpiac apply --renew` starts it and makes them", noted)
    return work.finish(checked=False)


def _wait(work: Work, why: str, hint: str, done: Sequence[str]) -> None:
    """A server that is meant to be stopped: what differs and cannot be made now is told, and waits."""
    waiting = [name for name in work.names if name not in done]
    work.reasons.append(f"{why}; waiting: {words.names(waiting)}" if waiting else why)
    if waiting:
        summary = f"{work.case.name} is stopped ({why}), so its changes wait: {words.names(waiting)}"
        work.diagnostics.append(work.ctx.diagnostic("note", "changes-wait", work.case.name, summary, hint=hint))


def _never(work: Work, field: str) -> bool:
    return never_done(field, work.record.spec)


def _awake(work: Work) -> Decision:
    _set_idle_aside(work)
    work.explain(work.names)
    if _never(work, "size"):
        work.reasons.append("what it was made with is not known for sure, so all is set anew")
    if _never(work, "package"):
        work.reasons.append("its first set-up did not finish")
    _power(work)
    _exec(work)
    _host(work)
    _idle(work)
    work.settle_rest(work.names)
    return work.finish(checked=True)


def _set_idle_aside(work: Work) -> None:
    if "idle" in work.names and not work.ctx.traits.idle_settable:
        work.names.remove("idle")
        work.idle_unset = True


def _power(work: Work) -> None:
    """Resume, restart or the ttl alone: resume and a real restart send the ttl along."""
    case, ctx, sandbox = work.case, work.ctx, work.sandbox
    changed = [name for name in work.leading_to("restart") if not _as_made(work, name)]
    if work.drifted(diff.size_drift(case.spec, sandbox, case.look.found)) and "size" not in changed:
        changed.append("size")
    verb: Literal["resume", "restart"] | None = None
    standing = case.look.standing
    why = _restart_summary(work, changed)
    if standing in ("stopped", "expired", "error") or sandbox.stopped:
        verb, why = "resume", _started(work, standing)
    elif changed:
        verb = "restart"
    alone = verb == "restart" and in_place(changed, ctx.traits)
    if verb is not None:
        also = [] if alone else [name for name in work.names if name in ("ttl", "disabled")]
        settles = [*changed, *also, *(["secrets"] if "secrets" in work.names and "secrets" not in changed else [])]
        if _passed_anew(work):
            settles.remove("secrets")
        summary = f"{why}, in place" if alone else f"{why} ({DOWN})" if verb == "restart" else why
        work.steps.append(steps.power(ctx, case, work.key, verb, changed, settles, summary, in_place=alone))
    if verb is None or alone:
        renews = ctx.options.renew and case.spec.ttl is not None and "ttl" not in ignored(case.spec)
        if "ttl" in work.names or renews:
            work.steps.append(steps.ttl(case, work.key, work.id, work.settles("ttl")))
        if renews and "ttl" not in work.names:
            work.reasons.append("ttl renewed")


def _as_made(work: Work, name: str) -> bool:
    """Whether the sandbox was made with this value already, though nothing counts as applied yet (an adopted one)."""
    if name == "secrets":
        return not work.secrets.changed
    if not _never(work, name) or name not in ("size", "egress"):
        return False
    return bool(getattr(work.sandbox, name) == work.case.view[name])


def _started(work: Work, standing: str) -> str:
    if standing == "error":
        why = work.case.look.why
        work.drifted((FieldChange("state", "error", "running", drift=True), f"the sandbox is in error: {why}"))
        work.diagnostics.append(
            work.ctx.diagnostic(
                "warning",
                "sandbox-error",
                work.case.name,
                f"the sandbox {work.id} of {work.case.name} is in error: {why}",
                detail="the plan resumes it",
                hint=f"if that does not help: `mcpiac apply --replace {work.ctx.stack}/{work.case.name}`",
            )
        )
        return "it is in error"
    if standing == "expired":
        work.fields.append(FieldChange("state", "expired", "running"))
        work.reasons.append("its ttl ended")
        return f"its ttl ended; {words.ttl(work.case.spec.ttl)}"
    if "disabled" in work.names and not _never(work, "disabled"):
        return "no longer disabled"
    if work.sandbox.stopped:
        if standing == "stopped":
            work.fields.append(FieldChange("state", "stopped", "running"))
        work.reasons.append("it is recorded as stopped")
        return "it is recorded as stopped"
    work.drifted((FieldChange("state", "stopped", "running", drift=True), "it was stopped before its deadline"))
    return "it was stopped before its deadline"


def _restart_summary(work: Work, changed: Iterable[str]) -> str:
    parts = []
    for name in changed:
        if name == "secrets":
            parts += [f"{words.secrets(sorted(work.secrets.changed))} changed"]
        elif name == "egress":
            parts.append(f"egress {words.egress(work.case.view['egress'])}")
        else:
            parts.append(f"{name} {work.case.view[name]}")
    return ", ".join(parts)


def _exec(work: Work) -> None:
    case, ctx, record = work.case, work.ctx, work.record
    changed = work.leading_to("exec")
    if (
        "bridge" in changed
        and "bridge" in record.spec
        and steps.pin(case, upgrade=False) == record.setup.get("bridge")
    ):
        changed.remove("bridge")
    taint = record.tainted or work.sandbox.tainted
    rewritten = steps.secret_files(case, work.secrets.changed)
    again = steps.secret_files(case, case.spec.secrets) if taint is not None else rewritten
    parts = [_exec_part(part) for part in work.fields if _head(part.path) in _heads(changed) and not part.drift]
    if _never(work, "package"):
        parts = [create.setup_summary(case)]
    parts += [f"file {path}" for path in again]
    passed = _passed_anew(work)
    if passed:
        parts.append("the secrets that it is passed")
    taint = record.tainted or work.sandbox.tainted
    if taint is not None:
        parts.append("again")
        work.reasons.append(f"the last set-up or check failed: {taint}")
    if ctx.options.upgrade_guest:
        parts.append("guest of this mcpiac")
        work.reasons.append("--upgrade-guest")
    if not (changed or again or passed or taint is not None or ctx.options.upgrade_guest):
        return
    settles = [*work.settles("exec"), *(["secrets"] if passed else [])]
    work.steps.append(
        steps.execute(ctx, case, work.key, work.id, settles, " · ".join(dict.fromkeys(parts)), again=again)
    )


def _passed_anew(work: Work) -> bool:
    """Whether the server is to be passed secrets of other names than its set-up wrote down: then the set-up settles
    them, not the restart that sends their values."""
    recorded = work.record.spec.get("secrets")
    return "secrets" in work.names and recorded is not None and {*recorded} != {*work.case.spec.secrets}


def _head(path: str) -> str:
    return path.split(".")[0].split("[")[0]


def _heads(changed: Iterable[str]) -> set[str]:
    return {*changed, *(["version"] if "package" in changed else [])}


def _exec_part(part: FieldChange) -> str:
    if part.path.startswith("files."):
        return f"file {part.path.removeprefix('files.')}"
    if part.path in ("version", "port", "path", "transport", "bind", "bridge") and part.before is not None:
        return f"{part.path} {part.before} → {part.after}"
    return part.path if part.path.startswith("env.") else _head(part.path)


def _host(work: Work) -> None:
    """The wanted port hosted; others hidden, the recorded one only after the new one is checked."""
    case, spec, recorded = work.case, work.case.spec, work.record.hosted
    live = case.look.hosted
    keep = case.port if spec.hosted else None
    drift = diff.hosted_drift(spec, recorded, live, keep)
    work.drifted(*drift)
    extra = set() if "hosted" in ignored(spec) else {*(live or ())} - {keep, recorded.port if recorded else None}
    for port in sorted(extra):
        work.steps.append(steps.hide(work.key, port, work.id, "not declared"))
    moved_away = len(drift) > len(extra)
    names = work.settles("host")
    wanted = (keep, spec.access, spec.bind == "loopback")
    if keep is not None:
        differs = recorded is None or (recorded.port, recorded.access, recorded.localhost) != wanted
        if differs or names or moved_away:
            if (
                recorded is None
                and "disabled" not in work.names
                and all(part.path != "hosted" for part in work.fields)
            ):
                work.reasons.append(f"port {keep} is not hosted yet")
            work.steps.append(steps.host(case, work.key, work.id, names, back=moved_away and not names))
    if recorded is not None and recorded.port != keep:
        why = "hosted: false" if keep is None else f"port {keep} takes its place"
        settles = names if keep is None else ()
        work.steps.append(steps.hide(work.key, recorded.port, work.id, why, settles, late=keep is not None))


def _idle(work: Work) -> None:
    case = work.case
    drift = diff.idle_drift(case.spec, work.sandbox, case.look.found) if "idle" not in work.names else None
    if drift is not None and not work.ctx.traits.idle_settable:
        work.idle_unset = True
        return
    if not work.drifted(drift) and "idle" not in work.names:
        return
    known = not _never(work, "idle")
    if not known:
        work.reasons.append("the idle delay is not set yet")
    before = work.sandbox.idle if known else None
    if drift is not None and case.look.found is not None:
        before = case.look.found.idle
    work.steps.append(steps.idle(case, work.key, work.id, work.settles("idle"), before))
