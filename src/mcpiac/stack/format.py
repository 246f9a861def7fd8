"""``fmt``: one layout for every stack file; comments and quotes stay, and the meaning never changes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.stack import source
from mcpiac.stack.compose import compose
from mcpiac.stack.finding import Finding, Spot
from mcpiac.stack.place import Places

WIDTH = 118
"""Columns; a longer plain text is not folded, only flow collections are."""


def format_file(path: Path, root: Path) -> tuple[str, str]:
    """A stack file's text as it is, and as it should be. Raises ``Diagnosed`` where it cannot be read or parsed."""
    file = source.shown(path, root)
    text = source.read_text(path, file)
    return text, format_text(text, file)


def format_text(text: str, file: str = "stack.yaml") -> str:
    """The text in the house layout: two columns a level, lists indented under their key, LF, one line end at the end.

    Raises ``Diagnosed`` for a text that is no YAML of ours. Formatting the result again changes nothing.
    """
    text = text.removeprefix("\ufeff")
    before = compose(text)
    if before.fault is not None or before.findings:
        findings = [before.fault] if before.fault else before.findings
        places = Places(file, text, before.root, stack="stack:" in text)
        raise Diagnosed(*(places.diagnostic(f) for f in findings))
    if before.empty:
        return _tidy(text)
    made = _tidy(_round_trip(text))
    again = _tidy(_round_trip(made))
    after = compose(again)
    if after.fault is not None or after.findings or plain(after.root) != plain(before.root):
        places = Places(file, text, before.root, stack=False)
        summary = "this file cannot be laid out without a change of its meaning; it was left as it is"
        raise Diagnosed(places.diagnostic(Finding("not-formatted", summary, Spot(0, 0), "lay it out by hand")))
    return again


def plain(node: Any) -> Any:
    """A tree as plain values that know their types: 1 and 1.0 and true differ."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return (type(node).__name__, repr(node))


def _round_trip(text: str) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.allow_duplicate_keys = False
    document = yaml.load(re.sub("\r\n?", "\n", text))
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _tidy(text: str) -> str:
    """No trailing blanks outside block scalars is YAML's own business; here: line ends, and how the file ends."""
    lines = re.sub("\r\n?", "\n", text).split("\n")
    body = "\n".join(lines).strip("\n")
    return body + "\n" if body else ""
