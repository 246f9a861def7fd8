"""Text from a guest, a registry or the service made harmless for where it is shown.

A terminal obeys control characters, a reader is fooled by bidirectional and invisible ones, a CI runner obeys lines
that begin with ``::`` (GitHub: "workflow commands") or hold ``##vso[`` (Azure: "logging commands"), and a
Markdown page obeys Markdown. Every renderer passes what came from outside through one of these.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and newline
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional
    "\ud800-\udfff"  # lone surrogates
    "\U000e0000-\U000e007f"  # tags
    "]"
)
_CI_COMMAND = re.compile(r"^(\s*)(::|##\[)|(##vso\[)", re.MULTILINE)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#|~&@:]|(?<=www)\.)", re.IGNORECASE)


def _visible(found: re.Match[str]) -> str:
    point = ord(found[0])
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def block(text: str) -> str:
    """Several lines for a terminal or a log: line ends stay, tabs become spaces, all else that acts is shown."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _CI_COMMAND.sub(r"\1\\\2\3", _HIDDEN.sub(_visible, text))


def line(text: str) -> str:
    """One line for a terminal or a log: line ends and tabs are shown too."""
    return block(text.replace("\t", "\\t").replace("\r", "\\r").replace("\n", "\\n"))


def markdown(text: str) -> str:
    """One line as plain words of a Markdown page: nothing links, mentions, styles or ends a table cell."""
    return _MARKDOWN.sub(r"\\\1", _HIDDEN.sub(_visible, " ".join(text.split())))


def markdown_code(text: str) -> str:
    """One line as inline code of a Markdown page, also within a table."""
    text = _HIDDEN.sub(_visible, " ".join(text.split())).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def width(text: str) -> int:
    """How many terminal columns a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    """A text that takes at most so many columns; what was cut shows as ``…``."""
    if width(text) <= columns:
        return text
    kept = ""
    for c in text:
        if width(kept + c) > columns - 1:
            break
        kept += c
    return kept + "…"
