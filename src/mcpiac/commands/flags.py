"""Flags that several verbs take alike, and the plan options that they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.model.plan import PlanOptions

PLANNING = (
    "renew",
    "replace",
    "target",
    "exclude",
    "labels",
    "overwrite_files",
    "upgrade_guest",
    "allow_gone",
    "allow_empty",
    "refresh_only",
)
"""Every flag that changes what is planned: kept in a saved plan, which takes none of them again."""


def stacks(parser: ArgumentParser, help: str = "a stack's file or name (default: all)") -> None:
    """STACK arguments."""
    parser.add_argument("stacks", metavar="STACK", nargs="*", help=help)


def planning(parser: ArgumentParser) -> None:
    """The flags that change what is planned, for plan, apply and destroy alike."""
    group = parser.add_argument_group("what is planned")
    add = group.add_argument
    add("--target", metavar="SERVER", action="append", default=[], help="only this server (repeatable)")
    add("--exclude", metavar="SERVER", action="append", default=[], help="all but this server (repeatable)")
    add("-l", "--label", dest="labels", metavar="K=V", action="append", default=[], help="only servers so labelled")
    add(
        "--replace", metavar="SERVER", action="append", default=[], help="a new sandbox for it; disk and URL are lost"
    )
    add("--renew", action="store_true", help="start each TTL anew, and resume what has expired")
    add("--overwrite-files", action="store_true", help="write declared files over what the server itself edited")
    add(
        "--upgrade-guest", action="store_true", help="take this mcpiac's own bridge and set-up, not the recorded ones"
    )
    add("--allow-gone", action="store_true", help="go on although more than half of the sandboxes are gone")
    add("--allow-empty", action="store_true", help="let an empty stack destroy all that is recorded")


def refresh_only(parser: ArgumentParser) -> None:
    """For plan and apply."""
    parser.add_argument("--refresh-only", action="store_true", help="take what is live over into the record instead")


def running(parser: ArgumentParser) -> None:
    """How an apply or destroy runs."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--parallelism", metavar="N", type=positive, default=16, help="actions at the same time (default: 16)"
    )
    parser.add_argument("--json", action="store_true", help="plan, events and findings as JSON, one object a line")


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def options(args: Namespace, *, destroy: bool = False) -> PlanOptions:
    """The plan options of a command line."""
    from mcpiac.model.plan import PlanOptions

    return PlanOptions(
        destroy=destroy,
        renew=args.renew,
        refresh_only=getattr(args, "refresh_only", False),
        replace=tuple(args.replace),
        target=tuple(args.target),
        exclude=tuple(args.exclude),
        labels=labels(args.labels),
        overwrite_files=args.overwrite_files,
        upgrade_guest=args.upgrade_guest,
        allow_gone=args.allow_gone,
        allow_empty=args.allow_empty,
    )


def labels(given: list[str]) -> dict[str, str]:
    """``-l team=a -l tier=web`` as a mapping."""
    read: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise error("usage", f"-l {text}: a label is written NAME=VALUE")
        read[name] = value
    return read


def given(args: Namespace) -> list[str]:
    """Which planning flags were typed: a saved plan refuses them by name."""
    return [_flag(name) for name in PLANNING if getattr(args, name, False)]


def typed(args: Namespace) -> list[str]:
    """The planning flags with their values, to be typed again: what was looked at is what is done."""
    words = []
    for name in PLANNING:
        value = getattr(args, name, False)
        for each in value if isinstance(value, list) else [None] if value else []:
            words += [_flag(name)] if each is None else [_flag(name), each]
    return words


def _flag(name: str) -> str:
    return "-l" if name == "labels" else "--" + name.replace("_", "-")
