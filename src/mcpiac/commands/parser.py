"""The argument parser: one per verb, built when that verb is typed; help opens with a sentence and two examples."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType
from typing import NoReturn

from mcpiac.commands.catalog import GROUPS, LATER, VERBS
from mcpiac.model.diagnostic import error


class Parser(argparse.ArgumentParser):
    """Raises ``Diagnosed`` for usage errors (exit 1, like every error)."""

    def __init__(self, *, sentence: str = "", examples: tuple[str, ...] = (), **rest: object) -> None:
        super().__init__(allow_abbrev=False, **rest)  # type: ignore[arg-type]
        self.sentence = sentence
        self.examples = examples

    def format_help(self) -> str:
        """The sentence, the examples, then usage and flags."""
        examples = "".join(f"  {line}\n" for line in self.examples)
        opening = f"{self.sentence}\n\n{examples}\n" if self.sentence else ""
        return opening + super().format_help()

    def error(self, message: str) -> NoReturn:
        """A usage error."""
        verb = self.prog.removeprefix("mcpiac ")
        raise error("usage", f"{verb}: {message}", hint=f"Type `{self.prog} --help`.")


def module(verb: str) -> ModuleType:
    """The module of a verb: ``SENTENCE`` comes from the catalog, the rest (``EXAMPLES``, ``configure``, ``run``)
    from it."""
    return importlib.import_module(f"mcpiac.commands.{verb}")


def parser(verb: str) -> Parser:
    """The parser of one verb."""
    carried = module(verb)
    made = Parser(prog=f"mcpiac {verb}", sentence=VERBS[verb], examples=carried.EXAMPLES, add_help=True)
    carried.configure(made)
    made.add_argument("-C", dest="chdir", metavar="DIR", default=None, help="the project folder")
    return made


def whole() -> Parser:
    """Every verb in one parser: for completion and for the documentation's test."""
    made = Parser(prog="mcpiac", sentence="MCP servers as code: one sandbox per server.")
    made.add_argument("-C", dest="chdir", metavar="DIR", help="the project folder")
    verbs = made.add_subparsers(dest="verb", metavar="VERB")
    for verb, sentence in VERBS.items():
        carried = module(verb)
        sub = verbs.add_parser(verb, help=sentence, description=sentence)
        carried.configure(sub)
        sub.add_argument("-C", dest="chdir", metavar="DIR", help="the project folder")
    return made


def overview() -> str:
    """What ``mcpiac --help`` prints."""
    lines = ["MCP servers as code: one sandbox per server, declared in files, planned, applied, verified.", ""]
    lines += ["  mcpiac init && mcpiac plan", '  mcpiac apply -y && eval "$(mcpiac env)"', ""]
    lines += ["usage: mcpiac [-C DIR] VERB [...]", ""]
    for group, verbs in GROUPS.items():
        lines += [f"{group}:", *(f"  {verb:<11} {sentence}" for verb, sentence in verbs.items()), ""]
    lines.append("`mcpiac VERB --help` tells more. Exit codes: 0 done, 1 error, 2 changes pending, 130 interrupted.")
    return "\n".join(lines)


def parse(argv: list[str]) -> argparse.Namespace:
    """Arguments as values, ``verb`` among them. ``verb`` is ``help`` or ``version`` where those were asked for."""
    words = list(argv)
    chdir = None
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in ("-h", "--help"):
            return argparse.Namespace(verb="help", chdir=chdir)
        if flag in ("-V", "--version"):
            return argparse.Namespace(verb="version", chdir=chdir, json=False)
        if flag == "-C" and words:
            chdir = words.pop(0)
        elif flag.startswith("-C") and len(flag) > 2:
            chdir = flag[2:].removeprefix("=")
        else:
            raise error("usage", f"`{flag}` is not a flag of mcpiac itself", hint="Type `mcpiac --help`.")
    if not words:
        return argparse.Namespace(verb="", chdir=chdir)
    verb, rest = words[0], words[1:]
    if verb == "help":
        if not rest:
            return argparse.Namespace(verb="help", chdir=chdir)
        verb, rest = rest[0], ["--help"]
    if verb not in VERBS:
        raise _unknown(verb)
    made = parser(verb)
    trailing: list[str] | None = None
    if verb == "exec" and "--" in rest:
        at = rest.index("--")
        rest, trailing = rest[:at], rest[at + 1 :]
    nested = any(isinstance(action, argparse._SubParsersAction) for action in made._actions)
    args = made.parse_args(rest) if nested else made.parse_intermixed_args(rest)
    args.verb = verb
    args.chdir = args.chdir or chdir
    if trailing is not None:
        args.command = [*args.command, *trailing]
    return args


def _unknown(verb: str) -> Exception:
    if verb in LATER:
        return error(
            "later", f"`mcpiac {verb}` comes with a later version", hint="Type `mcpiac --help` for what is here."
        )
    import difflib

    near = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"Did you mean `mcpiac {near[0]}`?" if near else "Type `mcpiac --help`."
    return error("usage", f"`{verb}` is not a verb of mcpiac", hint=hint)
