"""docs/commands.md names every verb, flag and exit code; its second half is made from the parser (`make docs`)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from mcpiac.commands import catalog, parser

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
MARK = "<!-- made by `make docs` from the parser; do not edit below -->\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def rows(made: argparse.ArgumentParser) -> list[str]:
    lines = []
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                lines.append(f"| `{choice.dest}` | {cell(choice.help or '')} |")
                lines += [line.replace("| `", f"| `{choice.dest} ", 1) for line in rows(action.choices[choice.dest])]
        elif not isinstance(action, argparse._HelpAction):
            shown = action.metavar if isinstance(action.metavar, str) else None
            if action.choices and not shown:
                shown = "\\|".join(action.choices)
            value = "" if action.nargs == 0 else f" {shown or action.dest.upper()}"
            name = ", ".join(action.option_strings) + value if action.option_strings else str(shown or action.dest)
            lines.append(f"| `{name.strip()}` | {cell(action.help or '')} |")
    return lines


def reference() -> str:
    parts = []
    for group, verbs in catalog.GROUPS.items():
        parts.append(f"### {group}\n")
        for verb, sentence in verbs.items():
            made = parser.parser(verb)
            examples = "\n".join(made.examples)
            parts.append(f"#### mcpiac {verb}\n\n{sentence}\n\n```sh\n{examples}\n```\n")
            found = [line for line in rows(made) if not line.startswith("| `-C")]
            if found:
                parts.append("\n".join(["| | |", "|---|---|", *found]) + "\n")
    return "\n".join(parts)


def test_the_page_is_what_the_parser_takes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    kept = text[: text.index(MARK) + len(MARK)]
    if os.environ.get("MCPIAC_DOCS") == "write":
        PAGE.write_text(f"{kept}\n{reference()}", encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == f"{kept}\n{reference()}"


@pytest.mark.parametrize("code", ["| 0 |", "| 1 |", "| 2 |", "| 130 |"])
def test_the_page_names_each_exit_code(code: str) -> None:
    assert code in PAGE.read_text(encoding="utf-8")
