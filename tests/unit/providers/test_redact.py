"""Tokens never stay in a text or a URL."""

from __future__ import annotations

from mcpiac.model.secret import Secret
from mcpiac.providers.api import Api, base, segment
from mcpiac.providers.redact import redact, split_token


def test_tokens_cookies_and_keys_are_masked() -> None:
    text = "GET https://x/?_token=abc&a=1 Cookie: __sbx_auth=def; x; Authorization: Bearer ghi, value jkl"
    masked = redact(text, ["jkl", ""])
    for secret in ("abc", "def", "ghi", "jkl"):
        assert secret not in masked
    assert "&a=1" in masked


def test_a_hosted_url_is_parted_from_its_token() -> None:
    assert split_token("https://a-8000.box.example.com?_token=a%2Fb") == (
        "https://a-8000.box.example.com",
        Secret("a/b"),
    )
    assert split_token("http://127.0.0.1:18431/?x=1&_token=t") == ("http://127.0.0.1:18431?x=1", Secret("t"))
    assert split_token("http://127.0.0.1:18431/") == ("http://127.0.0.1:18431", None)


def test_an_address_is_taken_with_and_without_its_prefix() -> None:
    assert base("https://x.example") == base("https://x.example/api/v1/") == "https://x.example/api/v1"


def test_an_id_stays_one_piece_of_a_path() -> None:
    assert segment("../a?b#c") == "..%2Fa%3Fb%23c"


async def _repr() -> str:
    api = Api("https://x.example/api/v1", key=Secret("never-shown"))
    try:
        return repr(api) + repr(vars(api)) + repr(vars(api._client))
    finally:
        await api.close()


def test_a_client_never_shows_its_key() -> None:
    import asyncio

    assert "never-shown" not in asyncio.run(_repr())
