"""What the YAML parser says becomes a finding in words that help: what is wrong, where it began, what to write."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError

from mcpiac.stack.finding import Finding, Spot


def lines_of(text: str) -> list[str]:
    """The lines as libyaml counts them."""
    return re.split("\r\n|[\n\r\x85\u2028\u2029]", text)


def syntax(text: str, fault: MarkedYAMLError) -> Finding:
    mark = fault.problem_mark or fault.context_mark
    line, column = mark.line, mark.column
    lines = lines_of(text)
    here = lines[line] if line < len(lines) else ""
    problem = fault.problem or "this is not YAML"
    if here[:column].strip(" ") == "" and here[column : column + 1] == "\t":
        return Finding("tab-indent", "a tab cannot indent in YAML", Spot(line, column), hint="use spaces")
    context = fault.context or ""
    opened = fault.context_mark
    if opened is not None and context in ("while parsing a flow mapping", "while parsing a flow sequence"):
        bracket = "{" if "mapping" in context else "["
        close = "}" if bracket == "{" else "]"
        summary = f"`{bracket}` is not closed where it should be"
        hint = f"a comma or `{close}` is missing after it, by line {line + 1}"
        return Finding("yaml-syntax", summary, Spot(opened.line, opened.column), hint=hint)
    if opened is not None and "quoted scalar" in context and "end of stream" in problem:
        return Finding(
            "yaml-syntax", "this quote is never closed", Spot(opened.line, opened.column), hint="close the quote"
        )
    if opened is not None and problem == "could not find expected ':'":
        line, column = opened.line, opened.column
    summary, hint = _SAID.get(problem, (problem, ""))
    return Finding("yaml-syntax", summary, Spot(line, column), hint=hint)


_SAID = {
    "mapping values are not allowed in this context": (
        "a `:` cannot stand here",
        "quote text that holds a colon and a space; put a nested key on a line of its own",
    ),
    "block sequence entries are not allowed in this context": (
        "a `-` cannot stand here",
        "a list begins on a line of its own",
    ),
    "found character that cannot start any token": (
        "text cannot begin with this character",
        "write it in quotes",
    ),
    "could not find expected ':'": ("a key without its `:`", "write: key: value"),
    "did not find expected key": (
        "no key where one was expected",
        "look at the indent: keys of one mapping stand in one column",
    ),
    "did not find expected '-' indicator": (
        "no `-` where one was expected",
        "look at the indent: items of one list stand in one column",
    ),
    "did not find expected node content": (
        "a key or a value is missing here",
        "write it, or remove what is too much",
    ),
    "did not find expected whitespace or line break": ("this tag cannot be read", "leave the tag out"),
    "found unexpected ':'": ("a `:` with nothing after it", "put a blank after it"),
    "found incompatible YAML document": ("mcpiac reads YAML 1.2 only", "leave the %YAML line out"),
    "found invalid Unicode character escape code": ("this escape is no character", ""),
    "found unknown escape character": ("this escape is not known in YAML", "use single quotes, or write \\\\"),
}


_UNACCEPTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def control_character(text: str) -> Finding:
    found = _UNACCEPTABLE.search(text)
    before = lines_of(text[: found.start()]) if found else [""]
    where = Spot(len(before) - 1, len(before[-1]))
    summary = "a control character cannot stand in YAML"
    return Finding("control-character", summary, where, hint="remove it, or write it as an escape in double quotes")
