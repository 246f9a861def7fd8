"""The YAML part: positions from the C parser, YAML 1.2 meaning, and the same tree as another parser of YAML 1.2."""

from __future__ import annotations

import importlib.machinery
import io
import json
from typing import Any

import _ruamel_yaml
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mcpiac.stack import compose as module
from mcpiac.stack.compose import Map, compose, first_scalar, spot
from mcpiac.stack.format import plain
from mcpiac.stack.shield import Shield

settings.register_profile("stack", deadline=None, print_blob=True)
settings.load_profile("stack")


def test_the_c_part_of_ruamel_yaml_is_in_use() -> None:
    loader = _ruamel_yaml.__loader__
    assert isinstance(loader, importlib.machinery.ExtensionFileLoader)
    assert module.CParser is _ruamel_yaml.CParser
    assert type(compose("a: b").root.at["a"][0].start_mark).__module__.endswith("_ruamel_yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"), ("on", "on"), ("y", "y"), ("Yes", "Yes"), ("off", "off"), ("true", True), ("FALSE", False),
        ("~", None), ("null", None), ("NULL", None), ("", None), ("nULL", "nULL"), ("1.10", 1.1), ("1e3", 1000.0),
        ("0644", 644), ("0o644", 420), ("0x1F", 31), ("1_000", "1_000"), ("12:30:00", "12:30:00"),
        ("+5", 5), ("-5", -5),
        (".5", 0.5), ("5.", 5.0), (".", "."), ("+", "+"), ("..5", "..5"), ("1.2.3", "1.2.3"),
        ("2026-08-31", "2026-08-31"), ("0b11", "0b11"), (".inf", float("inf")), ("-.INF", float("-inf")), ("=", "="),
        ("'1'", "1"), ('"1"', "1"), ("!!str 1", "1"), ("! 1", "1"), ("!!int 1", 1), ("!!float 1", 1.0),
        ("!!null ~", None),
        ("!!bool true", True), ("9" * 30, float("9" * 30)), ("0x" + "f" * 30, float("inf")),
    ],
)  # fmt: skip
def test_scalars_of_yaml_1_2(text: str, value: Any) -> None:
    composed = compose(f"a: {text}\n")
    assert (composed.fault, composed.findings) == (None, [])
    assert plain(composed.root["a"]) == plain(value)


def test_positions() -> None:
    root = compose("a: 1\nb:\n  - x\n  -  {c: 'd', é: \"f\"}\n").root
    item = root["b"][1]
    assert [spot(e).column for e in item.at["c"]] == [6, 9]
    assert [(spot(e).line, spot(e).column, spot(e).width) for e in item.at["é"]] == [(3, 14, 1), (3, 17, 3)]
    assert spot(root["b"].at[0]).line == 2


def test_a_merged_key_stands_where_it_was_written() -> None:
    root = compose("a: &a\n  x: 1\nb:\n  <<: *a\n  y: 2\n").root
    assert root["b"] == {"x": 1, "y": 2}
    assert spot(root["b"].at["x"][0]).line == 1


def test_aliases_share_and_do_not_multiply() -> None:
    root = compose("a: &a [1, 2]\nb: [*a, *a]\n").root
    assert root["b"][0] is root["a"]


def test_a_bomb_is_counted_before_anything_is_made_of_it() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    composed = compose("\n".join(lines))
    assert composed.fault is not None
    assert composed.fault.code == "alias-bomb"


def test_first_scalar_reads_no_further() -> None:
    assert first_scalar("servers: {a: [1, {b: c}]}\n? [x]\n: y\nstack: demo\n", "stack") == "demo"
    assert first_scalar("servers:\n  a: {b: [c]}\nstack: demo\nnext: [never closed", "stack") == "demo"
    assert first_scalar("{stack: a:b}", "stack") == "a:b"
    assert first_scalar("- stack", "stack") is None
    assert first_scalar("a: b\n", "stack") is None
    assert first_scalar("stack: [a]\n", "stack") is None


@pytest.mark.parametrize(
    "text",
    [
        "{A: env:A}", "[https://x/?y=1&z=2]", '{"a":1,"b":"c:d"}', "{'a':[1],b: {c: d:e}}", "[what? now, a?]",
        "[:x, a::b]",
        "{a: b:c, d: [e:f, 'g:h', \"i:j\"]}", "a: {b: c} # x:y?z\n", "a: |\n  x:y?z\n  {q:r}\n", "? a\n: b?c\n",
        "- [? a : b]",
        "{ ? a : b, c : d }", "\"a:b\": {c: 'd?e'}", "{\"a\" :1}", "x: '[a:b]'\n", "a: [b:\n c]\n",
    ],
)  # fmt: skip
def test_colons_and_questions_in_flow_collections(text: str) -> None:
    composed = compose(text)
    assert (composed.fault, composed.findings) == (None, [])
    assert composed.root == reference(text)


def test_a_question_mark_before_text_is_text() -> None:
    """As YAML 1.2.2 has it (7.3.3, ns-plain-first); ruamel's own parser takes it for a key."""
    assert compose("[?x]").root == ["?x"]


def test_the_shield_keeps_every_position() -> None:
    text = "{a: b:c?d, \ue000: [e:f]}\n"
    shield = Shield.over(text)
    assert len(shield.text) == len(text)
    assert shield.colon not in text
    assert shield.question not in text
    assert compose(text).root == {"a": "b:c?d", "\ue000": ["e:f"]}


def test_a_text_with_the_whole_private_use_area_has_no_shield() -> None:
    text = "a: '" + "".join(map(chr, range(0xE000, 0xF900))) + "'\nb: [c:d]\n"
    assert Shield.over(text).text == text
    assert compose(text).fault is not None


def reference(text: str) -> Any:
    """The tree by ruamel.yaml's own parser, which is pure Python."""
    yaml = YAML(typ="safe", pure=True)
    return yaml.load(text)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.text(st.sampled_from("abcNOyes01.:?-#{}[],&*!|>'\"%@` \n~é"), max_size=12),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.sampled_from("ab:? -1"), max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES, st.booleans())
def test_the_same_tree_as_was_written(tree: Any, flow: bool) -> None:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = flow
    out = io.StringIO()
    yaml.dump({"root": tree}, out)
    text = out.getvalue()
    assume(_reference_or_none(text) == {"root": tree})  # ruamel's writer makes {: 1: null} of a key ": 1"
    composed = compose(text)
    assert (composed.fault, composed.findings) == (None, [])
    assert composed.root["root"] == tree


def _reference_or_none(text: str) -> Any:
    try:
        return reference(text)
    except YAMLError:
        return None


@given(TREES)
def test_json_is_yaml(tree: Any) -> None:
    for text in (json.dumps({"root": tree}), json.dumps({"root": tree}, separators=(",", ":"), ensure_ascii=False)):
        composed = compose(text)
        assert (composed.fault, composed.findings) == (None, [])
        assert composed.root["root"] == tree


def test_a_map_is_a_dict_for_pydantic() -> None:
    root = compose("a: {b: c}\n").root
    assert isinstance(root, Map)
    assert root == {"a": {"b": "c"}}
