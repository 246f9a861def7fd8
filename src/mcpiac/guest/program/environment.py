"""Environment files: the sandbox's own is read, one with only a server's declared names is written.

The format is systemd's (systemd.exec(5), EnvironmentFile=). In double quotes, with backslashes before ``"``, ``\\``,
the backquote and ``$``, a POSIX shell reads the same value, line breaks included.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ESCAPED = '"\\`$'


def parse(text: str) -> dict[str, str]:
    """Name → value. A line that is none is left out, as systemd does."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].lstrip()
        equals = text.find("=", at, end)
        if not line or line[0] in "#;" or equals < 0:
            at = end + 1
            continue
        name = text[at:equals].strip().removeprefix("export ").strip()
        value, at = _value(text, equals + 1)
        if NAME.fullmatch(name):
            found[name] = value
    return found


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins at ``at``, and where the next line begins."""
    out: list[str] = []
    blanks = ""
    while at < len(text) and text[at] in " \t":
        at += 1
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if char in "\"'":
            out.append(blanks)
            blanks = ""
            piece, at = _quoted(text, at + 1, char)
            out.append(piece)
        elif char == "\\" and at + 1 < len(text):
            out.append(blanks + ("" if text[at + 1] == "\n" else text[at + 1]))
            blanks = ""
            at += 2
        elif char in " \t\r":
            blanks += char
            at += 1
        else:
            out.append(blanks + char)
            blanks = ""
            at += 1
    return "".join(out), at + 1


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    out: list[str] = []
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and quote == '"' and at + 1 < len(text):
            following = text[at + 1]
            out.append(following if following in ESCAPED else "" if following == "\n" else "\\" + following)
            at += 2
        else:
            out.append(text[at])
            at += 1
    return "".join(out), at + 1


def render(values: Mapping[str, str]) -> str:
    """The text of an environment file."""
    lines = []
    for name, value in values.items():
        escaped = "".join("\\" + char if char in ESCAPED else char for char in value)
        lines.append(f'{name}="{escaped}"\n')
    return "".join(lines)


def main(argv: Sequence[str]) -> int:
    """``SOURCE TARGET NAME…``: write the names of SOURCE that are asked for, readable by nobody else."""
    source, target, *names = argv
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        values = parse(file.read())
    missing = [name for name in names if name not in values]
    if missing:
        print(f"{source} lacks {', '.join(missing)}", file=sys.stderr)
        return 1
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(render({name: values[name] for name in names}))
    return 0
