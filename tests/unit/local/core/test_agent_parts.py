"""Parts of the agent that need no sandbox: frames, service definitions, references to secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcpiac.local.agent as agent
from mcpiac.local.agent.frames import MAX_FRAME, FrameError, decode, encode, length, pack, unpack
from mcpiac.local.agent.services import BadService, check, fill
from mcpiac.local.api.inside import OUTPUT_MAX, Output

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=5))
def test_a_frame_is_read_as_it_was_sent(message: dict[str, Any]) -> None:
    frame = encode(message)
    assert length(frame) == len(frame) - 4
    assert decode(frame[4:]) == message


@given(st.binary(max_size=300))
def test_bytes_travel(data: bytes) -> None:
    assert unpack(pack(data)) == data


@given(st.binary(max_size=200))
def test_nonsense_is_refused_and_nothing_else(data: bytes) -> None:
    try:
        assert isinstance(decode(data), dict)
    except FrameError:
        pass


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[]", b"1", b'"x"', b"null", b"\xff", b"NaN"])
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(body)


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    assert length((MAX_FRAME).to_bytes(4, "big")) == MAX_FRAME
    with pytest.raises(FrameError):
        length((MAX_FRAME + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("text", [None, 1, "é", "a", "ab=c", "ab\n=="])
def test_what_is_no_base64(text: object) -> None:
    with pytest.raises(FrameError):
        unpack(text)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("${secret.A}", "va"),
        ("x${secret.A}-${secret.B_2}y", "xva-v${secret.A}y"),
        ("$${secret.A}", "${secret.A}"),
        ("$$${secret.A}", "$${secret.A}"),
        ("${other} $HOME ${secret.}", "${other} $HOME ${secret.}"),
    ],
)
def test_references(text: str, filled: str) -> None:
    """A value is put in as it is: what looks like a reference in it stays."""
    assert fill(text, {"A": "va", "B_2": "v${secret.A}"}) == filled


def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(BadService, match="no secret GONE"):
        fill("${secret.GONE}", {"A": "canary"})


GOOD = {"name": "files", "argv": ["node", "x.js"]}


def test_a_definition_gets_its_defaults() -> None:
    assert check(GOOD) == {**GOOD, "env": {}, "pass": [], "cwd": "/home/user"}
    assert check({**GOOD, "port": 8000})["port"] == 8000


@pytest.mark.parametrize(
    "definition",
    [
        None,
        [],
        {},
        {**GOOD, "name": "../x"},
        {**GOOD, "name": "A"},
        {**GOOD, "name": "a" * 65},
        {**GOOD, "argv": []},
        {**GOOD, "argv": "node"},
        {**GOOD, "argv": ["a\0b"]},
        {**GOOD, "argv": [1]},
        {**GOOD, "env": {"A": 1}},
        {**GOOD, "env": ["A"]},
        {**GOOD, "pass": "A"},
        {**GOOD, "cwd": 1},
    ],
)
def test_bad_definitions(definition: object) -> None:
    with pytest.raises(BadService):
        check(definition)


def test_it_needs_nothing_but_the_standard_library() -> None:
    """As it is started: isolated, without site; from its own folder alone."""
    folder = Path(agent.__file__).parent
    program = (
        f"import sys; sys.path.insert(0, {str(folder.parent)!r});"
        "import agent.main, agent.client, json;"
        "print(json.dumps(sorted(name.partition('.')[0] for name in sys.modules)))"
    )
    done = subprocess.run(
        [sys._base_executable, "-I", "-S", "-E", "-c", program],  # type: ignore[attr-defined]
        check=True,
        capture_output=True,
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded - sys.stdlib_module_names - {"agent", "__main__"}
    assert not loaded & {"asyncio", "subprocess", "logging", "typing", "dataclasses", "threading", "inspect"}


def test_output_keeps_its_end() -> None:
    output = Output()
    for number in range(20):
        output.add(bytes([65 + number]) * 1_000_000)
    assert output.truncated
    assert output.text.endswith("T" * 1_000_000)
    assert OUTPUT_MAX <= len(output.text) < OUTPUT_MAX + 1_000_000
    short = Output()
    short.add(b"gr\xc3")
    short.add(b"\xbc\xc3\x9fe")
    assert (short.text, short.truncated) == ("grüße", False)
