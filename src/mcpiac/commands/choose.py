"""Which stacks a command is about, and which server a SERVER argument names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnosed, Diagnostic, error
from mcpiac.ui.words import count, listed

if TYPE_CHECKING:
    from mcpiac.model.plan import PlanOptions
    from mcpiac.model.record import State
    from mcpiac.model.spec import Stack
    from mcpiac.stack.project import Project
    from mcpiac.state.store import Store


@dataclass(frozen=True, slots=True)
class Chosen:
    """One stack of a run. ``stack`` is None where it is recorded and no file declares it."""

    name: str
    stack: Stack | None


@dataclass(slots=True)
class Choice:
    """``chosen`` in order of name; ``rest`` are the project's other declared stacks that could be read; ``orphaned``
    are recorded ones that were not chosen and that no file declares."""

    chosen: list[Chosen]
    rest: list[Stack] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)


def choose(project: Project, store: Store, names: Sequence[str], *, destroy: bool = False) -> Choice:
    """The stacks that ``names`` (files or names; none means all) stand for.

    A stack whose file is gone is chosen only by ``destroy``: by its name, or with all. Raises ``Diagnosed`` with all
    errors of the chosen files, for an unknown name, and for two files of one name.
    """
    from mcpiac.stack.load import read_stack

    recorded = store.names()
    paths, gone = _paths(project, recorded, names, destroy)
    files = project.stack_files()
    readings = {path: read_stack(path, project.root) for path in dict.fromkeys((*paths, *files))}
    findings = [d for path in paths for d in readings[path].diagnostics]
    declared = [r.stack for r in readings.values() if r.stack is not None]
    chosen = [stack for path in paths if (stack := readings[path].stack) is not None]
    if any(d.severity == "error" for d in findings):
        raise Diagnosed(*findings)
    known = {stack.name for stack in declared}
    missing = [name for name in recorded if name not in known]
    if destroy and not names and all(r.stack is not None for r in readings.values()):
        gone = missing
    made = [Chosen(stack.name, stack) for stack in chosen] + [Chosen(name, None) for name in gone]
    return Choice(
        chosen=sorted(made, key=lambda c: c.name),
        rest=[stack for stack in declared if stack not in chosen],
        orphaned=[name for name in missing if name not in gone],
        findings=findings,
    )


def _paths(
    project: Project, recorded: Sequence[str], names: Sequence[str], destroy: bool
) -> tuple[list[Path], list[str]]:
    if not names:
        return (project.select([]) if project.stack_files() or not (destroy and recorded) else []), []
    paths: list[Path] = []
    gone: list[str] = []
    faults: list[Diagnostic] = []
    for name in names:
        try:
            paths += [path for path in project.select([name]) if path not in paths]
        except Diagnosed as fault:
            if name not in recorded:
                faults += fault.diagnostics
            elif destroy:
                gone.append(name)
            else:
                hint = f"`mcpiac destroy {name}` takes down what is left of it."
                faults.append(Diagnostic("error", "stack-file-gone", f"no file declares the stack {name}", hint=hint))
    if faults:
        raise Diagnosed(*faults)
    return paths, gone


def orphan_notes(orphaned: Iterable[str], states: Mapping[str, State | None]) -> list[Diagnostic]:
    """A bare plan names the recorded stacks whose file is gone."""
    notes = []
    for name in orphaned:
        state = states.get(name)
        if state is not None and (state.sandboxes or state.servers or state.open):
            held = count(len(state.servers) or len(state.sandboxes), "server")
            notes.append(
                Diagnostic(
                    "note",
                    "stack-file-gone",
                    f"{name}: {held} recorded, and no file declares this stack any more",
                    hint=f"`mcpiac destroy {name}` takes it down.",
                )
            )
    return notes


def qualify(options: PlanOptions, known: Mapping[str, Iterable[str]]) -> PlanOptions:
    """Servers named by ``--target``, ``--exclude`` and ``--replace`` as STACK/NAME. ``known``: stack → its servers,
    declared or recorded. Raises ``Diagnosed`` for a name that none or several have."""

    def full(flag: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(address(name, known, flag)) for name in names)

    return replace(
        options,
        target=full("--target", options.target),
        exclude=full("--exclude", options.exclude),
        replace=full("--replace", options.replace),
    )


def address(name: str, known: Mapping[str, Iterable[str]], flag: str = "") -> Address:
    """The one server that STACK/NAME, or a unique NAME, stands for."""
    prefix, _, server = name.rpartition("/")
    found = [
        Address(stack, server) for stack, names in known.items() if server in set(names) and prefix in ("", stack)
    ]
    said = f"{flag} {name}: " if flag else ""
    if len(found) == 1:
        return found[0]
    if found:
        several = listed([str(a) for a in sorted(found)])
        raise error("ambiguous-server", f"{said}several stacks have a server {server}", hint=f"Write {several}.")
    every = [Address(stack, n) for stack, names in known.items() for n in names]
    short = [a.server for a in every]
    have = sorted(a.server if short.count(a.server) == 1 else str(a) for a in every)
    near = difflib.get_close_matches(name, [*have, *map(str, every)], n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"There is: {', '.join(have) or 'no server at all'}."
    raise error("no-such-server", f"{said}no server is called {name}", hint=hint)
