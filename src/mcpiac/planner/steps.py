"""How each step of a server is filled: payload, inputs' digest, and what a plan says beside the verb."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from mcpiac.model.action import Verb
from mcpiac.model.codec import digest, plain
from mcpiac.model.record import Instance
from mcpiac.planner import payloads, words
from mcpiac.planner.choose import display_name, owner
from mcpiac.planner.context import Case, Context
from mcpiac.planner.fields import EXEC_FIELDS, ignored
from mcpiac.planner.order import Step
from mcpiac.planner.payloads import Payload

Pin = Mapping[str, Any] | None


def create(ctx: Context, case: Case, sandbox: str, key: str, variable: str, settles: Iterable[str]) -> Step:
    """A new sandbox. ``variable`` and the port go into the server's record."""
    spec = case.spec
    payload: Payload = {
        "size": spec.size,
        "ttl": spec.ttl,
        "egress": plain(spec.egress),
        "secrets_at_rest": spec.secrets_at_rest,
        **environment(ctx, case, key),
        "name": sandbox_name(ctx, case.name),
        "variable": variable,
        "port": case.port,
        "timeout": spec.timeouts.create,
    }
    return _step("create", sandbox, payload, settles, words.created(spec), key=key)


def sandbox_name(ctx: Context, server: str) -> str:
    """The display name of a server's sandbox in this stack."""
    return display_name(ctx.stack, server, ctx.state.lineage)


def environment(ctx: Context, case: Case, key: str) -> Payload:
    """The whole environment of the server's sandbox."""
    current = ctx.fingerprints.get(case.name) or {}
    return {
        "secrets": sorted(case.spec.secrets),
        "fingerprints": payloads.traces({name: current.get(name) for name in sorted(case.spec.secrets)}),
        "owner": owner(ctx.state.lineage, case.name, key),
    }


def rename(ctx: Context, case: Case, sandbox: str, target: str | None) -> Step:
    """The display name as it should be."""
    name = sandbox_name(ctx, case.name)
    return _step("rename", sandbox, {"name": name, "settles": []}, None, name, target=target)


def pin(case: Case, *, upgrade: bool) -> Pin:
    """The bridge to use: the named one, else the one recorded at the last set-up, else this mcpiac's own (nulls)."""
    spec, record = case.spec, case.record
    if spec.transport == "http":
        return None
    named = spec.bridge
    if named is not None and named.version is not None:
        return {"name": named.name, "version": named.version}
    kept = record.setup.get("bridge") if record is not None and not upgrade else None
    unnamed_before = record is not None and record.spec.get("bridge") is None
    if kept is not None and (kept["name"] == named.name if named is not None else unnamed_before):
        return {"name": kept["name"], "version": kept["version"]}
    return {"name": named.name if named is not None else None, "version": None}


def execute(
    ctx: Context,
    case: Case,
    sandbox: str,
    target: str | None,
    settles: Iterable[str],
    summary: str,
    *,
    fresh: bool = False,
    again: Iterable[str] = (),
) -> Step:
    """The set-up in the guest. ``fresh``: nothing of it is there yet. ``again``: files that are written though their
    declaration is as recorded, since the secret that they hold changed."""
    upgrade = ctx.options.upgrade_guest
    recorded = {} if fresh or case.record is None else case.record.spec.get("files", {})
    kept = None if fresh or upgrade or case.record is None else case.record.setup.get("version")
    files = case.view["files"]
    write = {path: (recorded.get(path) or {}).get("sha256") for path in files if files[path] != recorded.get(path)}
    payload: Payload = {
        "port": case.port,
        "bridge": pin(case, upgrade=upgrade or fresh),
        "setup": kept,
        "write": {**write, **dict.fromkeys(again)},
        "remove": {path: old.get("sha256") for path, old in recorded.items() if path not in files},
        "overwrite": ctx.options.overwrite_files,
        "timeout": case.spec.timeouts.setup,
    }
    inputs = {
        **{name: case.view[name] for name in EXEC_FIELDS},
        **{k: payload[k] for k in ("port", "bridge", "setup")},
    }
    return _step("exec", sandbox, payload, settles, summary, target=target, inputs=inputs)


def secret_files(case: Case, changed: Iterable[str]) -> tuple[str, ...]:
    """Files that hold one of these secrets, so that they must be written anew."""
    names = set(changed)
    if "files" in ignored(case.spec):
        return ()
    return tuple(path for path, file in case.spec.files.items() if file.secret in names)


def host(case: Case, sandbox: str, target: str | None, settles: Iterable[str], *, back: bool = False) -> Step:
    """The server's port at a URL of its own. ``back``: it was so, and somebody changed it."""
    spec = case.spec
    payload = {
        "port": case.port,
        "access": spec.access,
        "localhost": spec.bind == "loopback",
        "title": spec.title,
    }
    summary = words.hosted(case.port, spec.access) + (" · puts it back" if back else "")
    return _step("host", sandbox, payload, settles, summary, target=target)


def hide(
    sandbox: str,
    port: int,
    target: str | None,
    summary: str,
    settles: Iterable[str] = (),
    *,
    late: bool = False,
    elsewhere: Instance | None = None,
) -> Step:
    """A port's URL taken down."""
    payload: Payload = {"port": port, "settles": list(settles)}
    if elsewhere is not None:
        payload["instance"] = payloads.instance(elsewhere)
    return _step("hide", sandbox, payload, None, f"port {port}, {summary}", target=target, late=late)


def idle(case: Case, sandbox: str, target: str | None, settles: Iterable[str], before: int | None = None) -> Step:
    """The idle delay, set. ``before``: what it was, where one was set."""
    minutes = case.spec.idle
    if minutes is None:
        summary = "no pause when idle"
    elif before is None or before == minutes:
        summary = f"pause after {minutes} min"
    else:
        summary = f"{before} → {minutes} min"
    return _step("idle", sandbox, {"idle": minutes}, settles, summary, target=target)


def ttl(case: Case, sandbox: str, target: str | None, settles: Iterable[str]) -> Step:
    """The time until auto-stop, from now on."""
    seconds = case.spec.ttl
    summary = "no ttl" if seconds is None else f"{words.duration(seconds)} from now"
    return _step("ttl", sandbox, {"ttl": seconds}, settles, summary, target=target)


def power(
    ctx: Context,
    case: Case,
    sandbox: str,
    verb: Literal["resume", "restart"],
    changed: Iterable[str],
    settles: Iterable[str],
    summary: str,
    *,
    in_place: bool = False,
) -> Step:
    """Resume (of what is stopped) or restart, with everything that the sandbox is given from outside."""
    _, was = case.known
    spec = case.spec
    payload: Payload = {
        "size": spec.size,
        "ttl": spec.ttl,
        "egress": plain(spec.egress),
        "secrets_at_rest": spec.secrets_at_rest,
        **environment(ctx, case, was.key),
        "changed": list(changed),
        "timeout": spec.timeouts.create,
    }
    if verb == "restart":
        payload["in_place"] = in_place
    return _step(verb, sandbox, payload, settles, summary, target=was.id)


def stop(case: Case, sandbox: str, summary: str, settles: Iterable[str]) -> Step:
    """Stopped, disk kept."""
    payload = {"timeout": case.spec.timeouts.create, "settles": list(settles)}
    return _step("stop", sandbox, payload, None, summary, target=case.known[1].id)


def check(case: Case, sandbox: str, target: str | None) -> Step:
    """A real MCP request through the URL, or from inside where none is hosted."""
    spec = case.spec
    payload = {
        "port": case.port,
        "path": spec.path,
        "access": spec.access,
        "hosted": spec.hosted,
        "timeout": spec.timeouts.check,
        "settles": [],
    }
    if not spec.hosted:
        summary = "answers from inside"
    elif spec.access == "public":
        summary = "answers at its URL"
    else:
        summary = "answers with its token, refuses without"
    return _step("check", sandbox, payload, None, summary, target=target)


def delete(
    sandbox: str,
    target: str | None,
    *,
    forget: bool,
    late: bool = False,
    elsewhere: Instance | None = None,
    summary: str = "its disk and URL are lost",
) -> Step:
    """The sandbox and its disk, for good."""
    payload: Payload = {"forget": forget}
    if elsewhere is not None:
        payload["instance"] = payloads.instance(elsewhere)
    return _step("delete", sandbox, payload, None, summary, target=target, late=late)


def record(sandbox: str, target: str | None, payload: Payload, summary: str) -> Step:
    """Only the record changes."""
    return _step("record", sandbox, payload, None, summary, target=target)


def _step(
    verb: Verb,
    sandbox: str,
    payload: Payload,
    settles: Iterable[str] | None,
    summary: str,
    *,
    target: str | None = None,
    key: str | None = None,
    late: bool = False,
    inputs: Mapping[str, Any] | None = None,
) -> Step:
    if settles is not None:
        payload = {**payload, "settles": list(settles), "digest": digest(payload if inputs is None else inputs)}
    return Step(verb, sandbox, payload, summary, target, key, late)
