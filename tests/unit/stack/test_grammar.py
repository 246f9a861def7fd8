"""The small languages, where the case files do not reach: edges, and what must agree with other rooms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac import wire
from mcpiac.stack import grammar, looks
from mcpiac.stack.grammar import Bad
from mcpiac.stack.package import package, parse_name, parse_version
from mcpiac.stack.rules import MOST_VARIABLES


def test_what_the_wire_says_too() -> None:
    assert grammar.RESERVED == wire.RESERVED_ENV
    assert grammar.VARIABLE == wire.ENV_NAME
    assert wire.OWNER_VARIABLE.startswith(grammar.RESERVED_PREFIX)
    assert MOST_VARIABLES == wire.ENV_MAX_COUNT


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("npm:a", ("npm", "a", ())),
        ("npm:@scope/a.b_c-d", ("npm", "@scope/a.b_c-d", ())),
        ("npm:" + "a" * 214, ("npm", "a" * 214, ())),
        ("pypi:mcp-server-time", ("pypi", "mcp-server-time", ())),
        ("pypi:Foo__Bar.baz", ("pypi", "foo-bar-baz", ())),
        ("pypi:a[X_1, b,b]", ("pypi", "a", ("b", "x-1"))),
    ],
)
def test_package_names(text: str, parsed: object) -> None:
    assert parse_name(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "npm:",
        "npm:.a",
        "npm:_a",
        "npm:-a",
        "npm:a/b",
        "npm:@a",
        "npm:@/a",
        "npm:@a/b/c",
        "npm:@a/.b",
        "npm:a~",
        "npm:a'",
        "npm:é",
        "npm:a@1",
        "npm:@a/b@1",
        "npm:file:x",
        "npm:http://x",
        "npm:github:a/b",
        "npm:a b",
        "npm:a\n",
        "npm:a\x00",
        "NPM:a",
        "pypi:",
        "pypi:-a",
        "pypi:a-",
        "pypi:a/b",
        "pypi:./a",
        "pypi:a[",
        "pypi:a[]",
        "pypi:a[b",
        "pypi:a[b]c",
        "pypi:a==1",
        "pypi:a@x",
        "pypi:a;b",
        "pypi:a --x",
        "pypi:é",
        "pypi:a\n",
        "git:a",
        "a",
        "",
        ":a",
    ],
)
def test_refused_package_names(text: str) -> None:
    with pytest.raises(Bad) as caught:
        parse_name(text)
    assert caught.value.code == "bad-package"


@pytest.mark.parametrize(
    ("registry", "text", "exact"),
    [
        ("npm", "0.0.0", "0.0.0"),
        ("npm", "1.2.3-alpha.1.x-y", "1.2.3-alpha.1.x-y"),
        ("npm", "2026.8.31", "2026.8.31"),
        ("pypi", "1", "1"),
        ("pypi", "1.10", "1.10"),
        ("pypi", "v1.0", "1.0"),
        ("pypi", "1.0-RC1", "1.0rc1"),
        ("pypi", "1!2.0.post1.dev3+local.1", "1!2.0.post1.dev3+local.1"),
    ],
)
def test_exact_versions(registry: str, text: str, exact: str) -> None:
    assert parse_version(registry, "a-server", text) == exact  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("registry", "text"),
    [
        *(
            ("npm", v)
            for v in (
                "1",
                "1.2",
                "1.2.3.4",
                "01.2.3",
                "1.2.3-01",
                "1.2.3-",
                "1.2.3 ",
                "=1.2.3",
                "next",
                "x",
                "",
                "1.2.3\n",
                "9" * 200,
            )
        ),
        *(
            ("npm", v)
            for v in (
                "npm:a@1.2.3",
                "file:../x",
                "git+ssh://x",
                "1.2.3 || 1",
                ">1",
                "-g",
                "1.2.3;x",
                "1" * 17 + ".0.0",
            )
        ),
        *(
            ("pypi", v)
            for v in (
                "==1.0",
                "1.0,",
                "1.0 ",
                "*",
                "1.*",
                "~=1",
                "latest",
                "",
                "1.0; x",
                "1.0 --x",
                "a==1",
                "1.0\n",
                "①.0",
            )
        ),
    ],
)
def test_refused_versions(registry: str, text: str) -> None:
    with pytest.raises(Bad):
        parse_version(registry, "a-server", text)  # type: ignore[arg-type]


def test_a_package_says_itself() -> None:
    assert str(package("pypi:Foo[b,a]", "1.0")) == "pypi:foo[a,b] 1.0"


@given(st.text(max_size=40))
def test_nothing_but_the_grammar_passes(text: str) -> None:
    for registry in ("npm", "pypi"):
        try:
            name = parse_name(f"{registry}:{text}")[1]
        except Bad:
            continue
        assert name.isascii()
        assert not name.startswith("-")
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789._-@/")
        assert ".." not in name.split("/")


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("1m", 60), ("8h", 28800), ("365d", 31536000), (60, 60)])
def test_ttl(text: object, seconds: int) -> None:
    assert grammar.parse_ttl(text) == seconds


@pytest.mark.parametrize(
    "value", [59, "59s", "1", "1w", "1.5h", "-1h", "1 h", "", "8H", True, None, [], 1.0, "9" * 20 + "d"]
)
def test_refused_ttl(value: object) -> None:
    with pytest.raises(Bad):
        grammar.parse_ttl(value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("$", []),
        ("{}", []),
        ("$x", []),
        ("$${a}", []),
        ("${a}", ["a"]),
        ("x${a}${b}", ["a", "b"]),
        ("${", [None]),
        ("${a", [None]),
        ("$${${a}", ["a"]),
        ("$$${a}", []),
        ("$${a}${", [None]),
        ("${}", [""]),
        ("${a${b}", ["a${b"]),
    ],
)
def test_references(text: str, found: list[str | None]) -> None:
    assert list(grammar.references(text)) == found


@pytest.mark.parametrize(
    "value",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "sk-proj-abcdefghijklmnop1234",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a" * 30,
        "glpat-" + "x" * 20,
        "xoxb-1234567890-abc",
        "AKIA" + "A" * 16,
        "AIza" + "a" * 35,
        "eyJhbGciOiJI.eyJzdWIiOiIx.sig",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "npm_" + "a" * 36,
        "hf_" + "a" * 30,
        "https://user:hunter2@example.com/",
        "sk_live_12345678",
        "Authorization: Bearer abcdefghijkl",
        "0123456789abcdef0123456789abcdef",
        "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5QUJD",
        "postgres://me:pw@db:5432/x",
        "redis://:password@host",
        "AGE-SECRET-KEY-1" + "Q" * 40,
        "K7v2mQ9xL4nR8wT1zB6cY3pD5s",
    ],
)
def test_looks_like_a_secret(value: str) -> None:
    assert looks.secret_value(value)
    assert value not in looks.scrub(f"before {value} after")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "info",
        "/home/user/project",
        "npm:@modelcontextprotocol/server-filesystem",
        "https://example.com/path?x=1",
        "123e4567-e89b-12d3-a456-426614174000",
        "2026-11-30T06:10:00Z",
        "the quick brown fox jumps over the lazy dog",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "SomeVeryLongCamelCaseIdentifierName",
        "0000000000000000000000000000000000000000",
        "a-long-name-with-many-small-words-in-it",
        "12345678901234567890123456789012",
        "http://localhost:8000/mcp",
        "user@example.com",
        "--allow-private-ips",
        "mcp_server_time.__main__:main",
    ],
)
def test_looks_like_no_secret(value: str) -> None:
    assert not looks.secret_value(value)
    assert looks.scrub(value) == value


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "API_KEY",
        "apiKey",
        "DB_PASSWORD",
        "client-secret",
        "AWS_SECRET_ACCESS_KEY",
        "auth.token",
        "PGPASS_PASS",
    ],
)
def test_secret_names(name: str) -> None:
    assert looks.secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "MAX_TOKEN",
        "TOKEN_LIMIT",
        "KEYBOARD",
        "AUTHOR",
        "PASSIVE",
        "SECRETARY",
        "TOKEN_FILE",
        "COMPASS",
        "MONKEY",
        "LOG_LEVEL",
    ],
)
def test_harmless_names(name: str) -> None:
    assert not looks.secret_name(name)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ([], []),
        (["--token", "abc"], [1]),
        (["--token", "--verbose"], []),
        (["--token=abc"], [0]),
        (["-token", "abc"], [1]),
        (["API_KEY=abc"], [0]),
        (["--apiKey", "abc"], [1]),
        (["--token", "${secret.T}"], []),
        (["--token="], []),
        (["--max-token", "5"], []),
        (["--tokens", "5"], [1]),
        (["token", "abc"], []),
        (["--level=debug"], []),
    ],
)
def test_suspicious_arguments(argv: list[str], found: list[int]) -> None:
    assert looks.suspicious_arguments(argv) == found


def test_scrubbing_leaves_no_tail_of_a_long_secret() -> None:
    long = "ghp_" + "aB3" * 400
    assert looks.scrub(f"x {long} y") == "x ••••"
    assert looks.scrub("x -----BEGIN PRIVATE KEY----- MIIE and more") == "x ••••"
