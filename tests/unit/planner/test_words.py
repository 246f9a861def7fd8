"""Values as people read them."""

from __future__ import annotations

import pytest

from mcpiac.model.codec import recorded_view
from mcpiac.model.record import ServerRecord, State
from mcpiac.model.spec import Egress, EgressRule, Package, ServerSpec
from mcpiac.planner import choose, words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "none"),
        (60, "1m"),
        (90, "90s"),
        (3600, "1h"),
        (28800, "8h"),
        (86400, "1d"),
        (90000, "25h"),
        (61, "61s"),
    ],
)
def test_durations_are_exact_in_the_largest_unit(seconds: int | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(("minutes", "text"), [(None, "off"), (0, "off"), (1, "1 min"), (10080, "10080 min")])
def test_idle(minutes: int | None, text: str) -> None:
    assert words.idle(minutes) == text


def test_lists_are_cut_with_a_count() -> None:
    assert words.names("abc") == "a, b, c"
    assert words.names(["s1", "s2", "s3", "s4", "s5", "s6", "s7"]) == "s1, s2, s3, s4, s5 and 2 more"


def test_egress_and_packages() -> None:
    spec = ServerSpec(
        package=Package("pypi", "mcp-server", "1.0", ("a", "b")),
        egress=Egress("list", (EgressRule("x.com"), EgressRule("y.com", (1, 2)))),
    )
    view = recorded_view(spec)
    assert words.egress(view["egress"]) == "x.com, y.com:1/2"
    assert words.package(view["package"]) == "pypi:mcp-server[a,b] 1.0"
    assert words.program(spec) == "pypi:mcp-server[a,b] 1.0"
    assert words.program(ServerSpec(command=("python3", "s.py"))) == "command python3"


def test_ports_are_the_declared_the_recorded_or_the_lowest_free() -> None:
    record = ServerRecord("a", {}, "A", 8123)
    assert choose.port(ServerSpec(port=9000), record) == 9000
    assert choose.port(ServerSpec(), record) == 8123
    assert choose.port(ServerSpec(), None) == 8000
    assert choose.port(ServerSpec(), None, {8000, 8001, 8003}) == 8002


def test_keys_and_variables_are_never_given_twice() -> None:
    names = choose.Names(State("my-stack", "l"), ["A", "MY_STACK_A"])
    assert [names.key("a"), names.key("a"), names.key("a")] == ["a", "a.2", "a.3"]
    assert [names.variable("a"), names.variable("b"), names.variable("b")] == ["MY_STACK_A_2", "B", "MY_STACK_B"]
    assert names.variable("9lives") == "MY_STACK_9LIVES"


def test_markers_name_their_server() -> None:
    assert choose.owner_server(choose.owner("l1", "files", "k")) == "files"
    assert choose.owner_server("somebody's") == ""
    assert choose.display_name("demo", "files", "3fa9c1d2-e4b5") == "mcp-demo--files-3fa9c1"
