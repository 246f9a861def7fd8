"""``--target``, ``--exclude`` and ``-l``: which servers a plan is about."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.plan import PlanOptions


@dataclass(frozen=True, slots=True)
class Selection:
    """``names`` None means all; ``replaced`` are those that ``--replace`` names; ``flags`` says what was asked."""

    names: frozenset[str] | None = None
    replaced: frozenset[str] = frozenset()
    flags: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the plan is about this server."""
        return self.names is None or name in self.names


def select(
    stack: str, options: PlanOptions, labels: Mapping[str, Mapping[str, str]], moved: Mapping[str, str]
) -> Selection:
    """The selected servers.

    ``labels`` has every server, declared or recorded, with its labels; ``moved`` new → old names: the old name means
    the new one, so that a move is never cut in two. A name with another stack before it says nothing here.
    """
    diagnostics: list[Diagnostic] = []
    aliases = {old: new for new, old in moved.items()}

    def known(flag: str, given: tuple[str, ...]) -> frozenset[str]:
        names = set()
        for text in given:
            prefix, _, name = text.rpartition("/")
            if prefix and prefix != stack:
                continue
            name = aliases.get(name, name)
            if name in labels:
                names.add(name)
            else:
                diagnostics.append(unknown(stack, flag, name, labels))
        return frozenset(names)

    replaced = known("--replace", options.replace)
    if not options.target and not options.exclude and not options.labels:
        return Selection(None, replaced, diagnostics=tuple(diagnostics))
    names = frozenset(labels)
    if options.target:
        names &= known("--target", options.target)
    if options.exclude:
        names -= known("--exclude", options.exclude)
    if options.labels:
        wanted = options.labels.items()
        names = frozenset(name for name in names if wanted <= labels[name].items())
    lost = sorted(replaced - names)
    if lost:
        diagnostics.append(
            Diagnostic(
                "error",
                "replace-left-out",
                f"--replace names {', '.join(lost)}, which --target, --exclude or -l leaves out",
                address=f"{stack}/{lost[0]}",
                hint="name it under --target as well, or drop --replace",
            )
        )
    flags = [
        flag
        for flag, given in (("--target", options.target), ("--exclude", options.exclude), ("-l", options.labels))
        if given
    ]
    return Selection(names, replaced, ", ".join(flags), tuple(diagnostics))


def unknown(stack: str, flag: str, name: str, known: Collection[str]) -> Diagnostic:
    """A name that is neither declared nor recorded, with the nearest that is."""
    near = difflib.get_close_matches(name, known, n=1)
    return Diagnostic(
        "error",
        "no-such-server",
        f"{flag} names {name}, which is neither declared nor recorded in {stack}",
        hint=f"did you mean `{near[0]}`?" if near else f"{stack} has: {', '.join(sorted(known)) or 'no server'}",
    )
