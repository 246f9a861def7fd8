"""The rules of the hosted URL, one by one, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from mcpiac.local import proxy_rules as rules
from mcpiac.local.proxy_rules import Request, Response, Route

TOKEN = b"s3cret"
ROUTE = Route("sandbox", 8000, 18431, TOKEN)
PUBLIC = Route("sandbox", 8000, 18431, None)
HOST = ("Host", "127.0.0.1:18431")


def request(*headers: tuple[str, str], method: str = "POST", target: str = "/mcp", version: str = "1.1") -> Request:
    listed = [(name.encode(), name.lower().encode(), value.encode()) for name, value in headers]
    return Request(method.encode(), target.encode(), version, listed)


def said(made: Request, route: Route = ROUTE) -> Any:
    answer = rules.admit(made, route)
    return None if answer is None else (answer.status, answer.code)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([HOST, ("Cookie", "__sbx_auth=s3cret")], None),
        ([HOST, ("Cookie", "a=b; __sbx_auth=s3cret; c=d")], None),
        ([HOST, ("Cookie", "__sbx_auth_18431=s3cret")], None),
        ([HOST, ("Cookie", "__sbx_auth=wrong; __sbx_auth_18431=s3cret")], None),
        ([HOST, ("Cookie", "a=b"), ("Cookie", "__sbx_auth=s3cret")], None),
        ([HOST, ("Authorization", "Bearer s3cret")], None),
        ([HOST, ("Authorization", "bearer  s3cret")], None),
        ([("Host", "LOCALHOST:18431"), ("Authorization", "Bearer s3cret")], None),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "http://127.0.0.1:18431")], None),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "http://localhost:18431")], None),
        ([HOST], (401, "unauthorised")),
        ([HOST, ("Cookie", "__sbx_auth=s3cre")], (401, "unauthorised")),
        ([HOST, ("Cookie", "__sbx_auth=s3cret1")], (401, "unauthorised")),
        ([HOST, ("Cookie", "__sbx_auth=")], (401, "unauthorised")),
        ([HOST, ("Cookie", "__sbx_auth_18432=s3cret")], (401, "unauthorised")),
        ([HOST, ("Cookie", "x__sbx_auth=s3cret")], (401, "unauthorised")),
        ([HOST, ("Authorization", "s3cret")], (401, "unauthorised")),
        ([HOST, ("Authorization", "Basic s3cret")], (401, "unauthorised")),
        ([("Host", "evil.example"), ("Cookie", "__sbx_auth=s3cret")], (421, "wrong_host")),
        ([("Host", "127.0.0.1"), ("Cookie", "__sbx_auth=s3cret")], (421, "wrong_host")),
        ([("Host", "127.0.0.1:18432"), ("Cookie", "__sbx_auth=s3cret")], (421, "wrong_host")),
        ([("Host", "127.0.0.1:18431.evil.example"), ("Cookie", "__sbx_auth=s3cret")], (421, "wrong_host")),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "http://evil.example")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "http://127.0.0.1:18432")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "null")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "https://127.0.0.1:18431")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth_18431=s3cret"), ("Sec-Fetch-Site", "same-site")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth_18431=s3cret"), ("Sec-Fetch-Site", "cross-site")], (403, "wrong_origin")),
        ([HOST, ("Cookie", "__sbx_auth_18431=s3cret"), ("Sec-Fetch-Site", "same-origin")], None),
        ([HOST, ("Cookie", "__sbx_auth_18431=s3cret"), ("Sec-Fetch-Site", "none")], None),
    ],
)
def test_who_may_pass(headers: list[tuple[str, str]], expected: Any) -> None:
    assert said(request(*headers)) == expected


def test_a_public_port_needs_no_token_but_the_right_host_and_origin() -> None:
    assert said(request(HOST), PUBLIC) is None
    assert said(request(("Host", "evil.example")), PUBLIC) == (421, "wrong_host")
    assert said(request(HOST, ("Origin", "http://evil.example")), PUBLIC) == (403, "wrong_origin")


def test_a_listed_origin_is_let_in_and_passed_on() -> None:
    route = Route("sandbox", 8000, 18431, TOKEN, frozenset((b"https://app.example",)))
    made = request(HOST, ("Cookie", "__sbx_auth=s3cret"), ("Origin", "https://app.example"))
    assert said(made, route) is None
    assert b"Origin: https://app.example\r\n" in rules.request_head(made, route)


NAVIGATION = (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Site", "none"), ("Accept", "text/html"))


@pytest.mark.parametrize("headers", [NAVIGATION, (("Accept", "text/html,*/*"),)])
def test_a_browser_trades_the_token_of_the_url_for_a_cookie(headers: Any) -> None:
    answer = rules.admit(request(HOST, *headers, method="GET", target="/a?x=1&_token=s3cret&y=2"), ROUTE)
    assert answer is not None
    assert answer.status == 303
    assert b"Location: http://127.0.0.1:18431/a?x=1&y=2" in answer.headers
    assert b"Set-Cookie: __sbx_auth_18431=s3cret; Path=/; HttpOnly; SameSite=Strict" in answer.headers
    assert b"Referrer-Policy: no-referrer" in answer.headers


def test_the_trade_never_leads_elsewhere() -> None:
    answer = rules.admit(request(HOST, *NAVIGATION, method="GET", target="//evil.example/?_token=s3cret"), ROUTE)
    assert answer is not None
    assert b"Location: http://127.0.0.1:18431//evil.example/" in answer.headers


def test_a_link_from_another_site_is_traded_by_a_page_of_our_own() -> None:
    headers = (("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Site", "cross-site"))
    answer = rules.admit(request(HOST, *headers, method="GET", target='/"><b>?a&_token=s3cret'), ROUTE)
    assert answer is not None
    assert (answer.status, answer.code) == (200, "traded")
    assert answer.html is not None
    assert b'url=http://127.0.0.1:18431/&quot;&gt;&lt;b&gt;?a"' in answer.html
    assert b"s3cret" not in answer.html


@pytest.mark.parametrize(
    ("method", "headers", "target"),
    [
        ("POST", NAVIGATION, "/?_token=s3cret"),
        ("GET", (("Accept", "application/json, text/event-stream"),), "/?_token=s3cret"),
        ("GET", (("Sec-Fetch-Mode", "cors"), ("Accept", "text/html")), "/?_token=s3cret"),
        ("GET", NAVIGATION, "/?_token=wrong"),
        ("GET", NAVIGATION, "/?_token="),
        ("GET", NAVIGATION, "/?x_token=s3cret"),
    ],
)
def test_the_token_in_the_url_is_for_browser_navigations_only(method: str, headers: Any, target: str) -> None:
    assert said(request(HOST, *headers, method=method, target=target)) == (401, "unauthorised")


def test_what_the_server_gets() -> None:
    made = request(
        HOST,
        ("Cookie", "a=b; __sbx_auth=s3cret; __sbx_auth_18431=x; __sbx_auth_9=y; __sbx_authentic=z; c"),
        ("Authorization", "Bearer s3cret"),
        ("Connection", "keep-alive, X-Private, content-length, host"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic x"),
        ("TE", "trailers"),
        ("X-Private", "1"),
        ("X-Forwarded-Host", "evil.example"),
        ("Origin", "http://127.0.0.1:18431"),
        ("Expect", "100-continue"),
        ("Content-Length", "3"),
        ("Mcp-Session-Id", "abc"),
        target="/mcp?_token=s3cret&a=1",
    )
    assert rules.form(made) is None
    assert rules.request_head(made, ROUTE).split(b"\r\n") == [
        b"POST /mcp?a=1 HTTP/1.1",
        b"Host: 127.0.0.1:8000",
        b"Cookie: a=b; __sbx_authentic=z; c",
        b"Origin: http://127.0.0.1:8000",
        b"Content-Length: 3",
        b"Mcp-Session-Id: abc",
        b"X-Forwarded-Host: 127.0.0.1:18431",
        b"X-Forwarded-Proto: http",
        b"",
        b"",
    ]


def test_what_is_not_ours_stays() -> None:
    made = request(
        HOST,
        ("Cookie", "session=1"),
        ("Authorization", "Bearer of-the-server"),
        target="/?_token=csrf-of-the-server",
    )
    head = rules.request_head(made, ROUTE)
    assert head.startswith(b"POST /?_token=csrf-of-the-server HTTP/1.1\r\n")
    assert b"Cookie: session=1\r\n" in head
    assert b"Authorization: Bearer of-the-server\r\n" in head
    # A public port has no token of its own; cookies of other ports are stripped all the same.
    made = request(HOST, ("Cookie", "__sbx_auth_5=x"), ("Authorization", "Bearer s3cret"))
    head = rules.request_head(made, PUBLIC)
    assert b"Cookie" not in head
    assert b"Authorization: Bearer s3cret\r\n" in head


def test_what_the_client_gets() -> None:
    listed = [
        ("Content-Type", "text/html"),
        ("Connection", "keep-alive, X-Internal"),
        ("X-Internal", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Set-Cookie", "__sbx_auth_18432=tossed; Path=/"),
        ("Set-Cookie", "sid=1"),
        ("Location", "http://127.0.0.1:8000/next"),
    ]
    response = Response(302, b"Found", [(n.encode(), n.lower().encode(), v.encode()) for n, v in listed])
    assert rules.response_form(response) is None
    head = rules.response_head(response, request(HOST), ROUTE, chunk=True, close=False)
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 302 Found",
        b"Content-Type: text/html",
        b"Set-Cookie: sid=1",
        b"Location: http://127.0.0.1:18431/next",
        b"Transfer-Encoding: chunked",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", (("Accept", "text/event-stream"),), True),
        ("GET", (("Accept", "application/json"),), False),
        ("POST", (("Accept", "application/json, text/event-stream"),), False),
        ("POST", (("Mcp-Method", "subscriptions/listen"),), True),
        ("POST", (("Mcp-Method", "tools/call"),), False),
    ],
)
def test_what_may_stay_open_without_keeping_a_sandbox_awake(method: str, headers: Any, expected: bool) -> None:
    assert rules.is_stream(request(HOST, *headers, method=method)) is expected


def test_an_answer_tells_no_scheme_to_try() -> None:
    text = rules.UNAUTHORISED.render(close=False)
    assert b"www-authenticate" not in text.lower()
    assert b"sandbox" not in text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b": keep-alive\n\n", True),
        (b":\r\n\r\n", True),
        (b"\n", True),
        (b": a\n: b\n\n", True),
        (b"data: 1\n\n", False),
        (b": a\ndata: 1\n\n", False),
        (b"event: ping\n\n", False),
        (b":" + b"a" * 300, False),
    ],
)
def test_a_comment_on_an_event_stream_is_no_use_of_it(data: bytes, expected: bool) -> None:
    assert rules.is_keepalive(data) is expected
