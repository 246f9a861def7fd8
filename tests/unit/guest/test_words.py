"""Argument vectors arrive unchanged, whoever starts the server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpiac.guest.program.fault import Failed
from mcpiac.guest.program.words import expand, for_agent, for_shell, literal, parts
from mcpiac.local.agent.services import fill

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
ODD = st.lists(st.one_of(TEXT, st.sampled_from(["${", "$${", "$", "{", "}", "%s", "\\", "\n"]))).map("".join)
BEFORE_A_SECRET = ODD.filter(lambda text: not text.endswith("$"))
"""``$`` and a reference beside it would read as ``$${``: that is what a stack cannot say."""
SECRETS = {"TOKEN": 'it\'s "$HOME" `x` \\n\n${port} €'}
ECHO = [sys.executable, "-c", "import json,sys; print(json.dumps(sys.argv[1:]))"]


def written(text: str) -> str:
    """A text as it stands in a stack when it is meant literally."""
    return text.replace("${", "$${")


@given(TEXT)
@example("${secret.TOKEN}")
@example("$${x}$$${")
def test_a_literal_text_comes_back(text: str) -> None:
    assert literal(parts(written(text), 8000)) == text


@given(BEFORE_A_SECRET, ODD)
def test_the_agent_gets_every_text(before: str, after: str) -> None:
    template = f"{written(before)}${{secret.TOKEN}}{written(after)}"
    assert fill(for_agent(parts(template, 8000)), SECRETS) == before + SECRETS["TOKEN"] + after


@settings(max_examples=20, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
@example(["a b", "it's", '"', "$HOME", "`id`", "%s%%", "\\", "\n", "", "ü€\U0001f600", "-n", "*", "~"])
def test_a_shell_gets_every_argument(argv: list[str]) -> None:
    words = [for_shell(parts(written(item), 8000)) for item in argv]
    line = " ".join([*(for_shell([["text", word]]) for word in ECHO), *words])
    said = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    assert json.loads(said) == argv


def test_a_shell_puts_the_secret_in_whole() -> None:
    word = for_shell(parts("--token=${secret.TOKEN}!", 8000))
    line = " ".join([*(for_shell([["text", w]]) for w in ECHO), word])
    said = subprocess.run(["sh", "-c", line], capture_output=True, check=True, env=SECRETS).stdout
    assert json.loads(said) == [f"--token={SECRETS['TOKEN']}!"]


def test_a_command_within_a_command_keeps_its_arguments() -> None:
    """A bridge that takes the server as one text for a shell, started by the agent."""
    argv = ["a b", "it's", "$${x}", "${secret.TOKEN}", "\n", "${port}"]
    packages = [{"roles": ["server"], "name": "n", "version": "1", "entry": ECHO, "env": {"A B": "c'd"}}]
    (one,) = expand([{"shell": [{"entry": "server"}, *argv]}], packages, 8123)
    line = fill(for_agent(one), SECRETS)
    assert SECRETS["TOKEN"] not in line
    said = subprocess.run(["sh", "-c", line], capture_output=True, check=True, env=SECRETS).stdout
    assert json.loads(said) == ["a b", "it's", "${x}", SECRETS["TOKEN"], "\n", "8123"]


def test_a_package_without_a_program_is_told() -> None:
    packages = [{"roles": ["server"], "name": "n", "version": "1", "entry": None}]
    with pytest.raises(Failed, match="no program"):
        expand([{"entry": "server"}], packages, 1)
