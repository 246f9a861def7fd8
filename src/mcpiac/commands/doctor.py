"""``mcpiac doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.ui.doctor import Line

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.model.diagnostic import Diagnostic
    from mcpiac.model.spec import Stack
    from mcpiac.stack.project import Project

EXAMPLES = ("mcpiac doctor", "mcpiac doctor --json | jq '.findings[] | select(.level != \"ok\")'")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.ui import doctor, json_lines

    lines = list(_lines(context))
    if args.json:
        context.screen.result(json_lines.encode("doctor", doctor.data(lines)))
    else:
        context.screen.result(doctor.render(lines, context.screen.colour_out))
    return 1 if any(line.level == "error" for line in lines) else 0


def _lines(context: Context) -> Iterator[Line]:
    import platform

    from mcpiac.commands.version import number

    yield Line("mcpiac", "ok", "mcpiac", f"{number()}, Python {platform.python_version()}")
    project: Project | None = None
    stacks: list[Stack] = []
    try:
        project = context.project()
    except Diagnosed as fault:
        yield from _faults("project", fault.diagnostics, level="note")
    if project is not None:
        stacks, found = _stacks(project)
        yield from found
    providers = {stack.provider for stack in stacks} or {"local"}
    if "local" in providers:
        yield from _local(context)
    for name in sorted(providers - {"local"}):
        yield from _service(context, name)
    if project is not None:
        yield from _secrets(context, project, stacks)
        yield from _state(project)
    yield from _fingerprints(context)


def _stacks(project: Project) -> tuple[list[Stack], list[Line]]:
    from mcpiac.stack.load import read_stack
    from mcpiac.ui.words import count

    try:
        readings = [read_stack(path, project.root) for path in project.select([])]
    except Diagnosed as fault:
        return [], list(_faults("project", fault.diagnostics))
    stacks = [r.stack for r in readings if r.stack is not None]
    lines = [line for r in readings for line in _faults("stack", r.diagnostics)]
    servers = sum(len(stack.servers) for stack in stacks)
    told = f"{project.root}: {count(len(stacks), 'stack')}, {count(servers, 'server')}"
    return stacks, [Line("project", "ok", "project", told), *lines]


def _local(context: Context) -> Iterator[Line]:
    from mcpiac.commands.daemon import listening_pid
    from mcpiac.local.machine import examine
    from mcpiac.providers.daemon import Daemon

    daemon = Daemon(context.environ)
    for found in examine(daemon.home):
        yield Line(found.code, found.level, found.looked_at, found.found, found.means, found.cure)
    try:
        pid = listening_pid(daemon)
    finally:
        daemon.close()
    if pid is None:
        yield Line("daemon", "ok", "daemon", "does not run; the first command that needs it starts it")
        return
    yield from _service(context, "local", f"process {pid}, ")


def _service(context: Context, name: str, told: str = "") -> Iterator[Line]:
    """Whether a provider answers, and who it is."""
    from mcpiac.commands.loop import Loop

    looked_at = "daemon" if name == "local" else name
    try:
        with Loop() as loop:
            id = loop.run(_instance(context, name))
    except Diagnosed as fault:
        yield from _faults(looked_at, fault.diagnostics)
    else:
        yield Line(looked_at, "ok", looked_at, f"{told}instance {id}")


async def _instance(context: Context, name: str) -> str:
    from mcpiac.commands import view

    async with view.connected([name], context.environ) as providers:
        with view.told(f"the provider {name}"):
            return (await providers[name].instance()).id


def _secrets(context: Context, project: Project, stacks: list[Stack]) -> Iterator[Line]:
    from mcpiac.secrets import sources

    count = 0
    for stack in stacks:
        for name, spec in stack.servers.items():
            values, faults = sources.resolve(
                spec.secrets, project.root, context.environ, address=f"{stack.name}/{name}"
            )
            count += len(values)
            yield from _faults("secret", faults)
    if count:
        yield Line("secrets", "ok", "secrets", f"{count} have a value (not shown)")


def _state(project: Project) -> Iterator[Line]:
    from mcpiac.state.store import Store
    from mcpiac.ui.words import count

    store = Store(project.root / "state")
    try:
        names = store.names()
    except Diagnosed as fault:
        yield from _faults("state", fault.diagnostics)
        return
    for name in names:
        try:
            state = store.read(name)
        except Diagnosed as fault:
            yield from _faults("state", fault.diagnostics)
            continue
        if state is None:
            continue
        told = f"{name}: serial {state.serial}, {count(len(state.servers), 'server')}"
        if state.open:
            means = "a run did not end; the next apply finds out what happened before it does anything else"
            yield Line("state-open", "note", "state", f"{told}, {len(state.open)} in doubt", means, "mcpiac apply")
        else:
            yield Line("state", "ok", "state", told)


def _fingerprints(context: Context) -> Iterator[Line]:
    from mcpiac.secrets import fingerprint

    try:
        key = fingerprint.key(False, context.environ)
    except Diagnosed as fault:
        yield from _faults("fingerprint key", fault.diagnostics)
        return
    if key is None:
        told = f"{fingerprint.location(context.environ)}: not made yet; the first apply with secrets makes it"
        yield Line("fingerprint-key", "ok", "fingerprint key", told)
    else:
        yield Line("fingerprint-key", "ok", "fingerprint key", f"id {key.id}")


def _faults(looked_at: str, findings: tuple[Diagnostic, ...] | list[Diagnostic], level: str = "") -> Iterator[Line]:
    for d in findings:
        where = f"{d.origin}: " if d.origin else f"{d.address}: " if d.address else ""
        yield Line(d.code, level or d.severity, looked_at, where + d.summary, d.detail, d.hint)  # type: ignore[arg-type]
