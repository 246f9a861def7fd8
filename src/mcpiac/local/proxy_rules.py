"""The rules of the hosted URL, as pure functions over one request head: who may pass, and what is passed on.

Order of the checks, first that fails answers: form of the request (400), Host (421), Origin (403), token (401).
Only then may anything be woken. Names of the headers are lower-case bytes here; values are bytes as they came.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

COOKIE = b"__sbx_auth"
TOKEN_PARAMETER = b"_token"

HEAD_MAX = 64 * 1024
HEADERS_MAX = 128

_OURS = re.compile(rb"__sbx_auth(_[0-9]{1,5})?\Z")
"""Cookies ignore ports, so a browser sends those of other hosted ports too: none may reach a server."""

HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
"""RFC 9110 section 7.6.1, with the older names that it lists."""
_WRITTEN_ANEW = frozenset((b"host", b"expect", b"x-forwarded-host", b"x-forwarded-proto"))
_FRAMING = frozenset((b"host", b"content-length"))
"""Never removed because a Connection header names them: that would change where a message ends."""

REASONS = {
    200: b"OK",
    303: b"See Other",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    421: b"Misdirected Request",
    431: b"Request Header Fields Too Large",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the proxy itself says. ``code`` is stable (``docs/proxy.md``); ``close`` ends the connection."""

    status: int
    code: str
    message: str
    headers: tuple[bytes, ...] = ()
    html: bytes | None = None
    close: bool = False

    def render(self, *, close: bool, head_only: bool = False) -> bytes:
        """The whole response."""
        if self.html is not None:
            body, kind = self.html, b"text/html; charset=utf-8"
        else:
            said = {"ok": False, "status": self.status, "code": self.code, "message": self.message}
            body, kind = json.dumps(said).encode() + b"\n", b"application/json"
        head = [
            b"HTTP/1.1 %d %s" % (self.status, REASONS[self.status]),
            b"Content-Type: " + kind,
            b"Content-Length: %d" % len(body),
            b"Cache-Control: no-store",
            *self.headers,
        ]
        if close:
            head.append(b"Connection: close")
        return b"\r\n".join(head) + b"\r\n\r\n" + (b"" if head_only else body)


@dataclass(frozen=True, slots=True)
class Route:
    """One hosted port: ``listen`` on 127.0.0.1 leads to ``port`` in ``sandbox``. ``token`` None: public.

    ``origins`` are further values of Origin that are let in, beside the URL's own two.
    """

    sandbox: str
    port: int
    listen: int
    token: bytes | None
    origins: frozenset[bytes] = frozenset()


@dataclass(slots=True)
class Request:
    """One request head as the parser gave it."""

    method: bytes = b""
    target: bytes = b""
    version: str = "1.1"
    headers: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    """(name as sent, name in lower case, value)"""
    chunked: bool = False
    length: int | None = None

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header."""
        for _, lower, value in self.headers:
            if lower == name:
                return value
        return None

    def all(self, name: bytes) -> list[bytes]:
        return [value for _, lower, value in self.headers if lower == name]

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)


def bad_request(why: str) -> Answer:
    return Answer(400, "bad_request", f"This is not a request that can be passed on: {why}.", close=True)


UNAUTHORISED = Answer(401, "unauthorised", "The token of this URL is missing or wrong.")
TOO_LARGE = Answer(431, "head_too_large", f"The request head is over {HEAD_MAX} bytes.", close=True)
NO_UPGRADE = Answer(501, "no_upgrade", "Upgrades (WebSocket, h2c) are not passed on.", close=True)


def form(request: Request) -> Answer | None:
    """What the parser lets through and we do not; fills in how the body is framed."""
    if request.version not in ("1.1", "1.0"):
        return Answer(505, "http_version", "Speak HTTP/1.1.", close=True)
    if not request.target.startswith(b"/"):
        return bad_request("the target must be a path")
    if len(request.all(b"host")) != 1:
        return bad_request("exactly one Host header is needed")
    if request.get(b"upgrade") is not None:
        return NO_UPGRADE
    lengths, codings = request.all(b"content-length"), request.all(b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        return bad_request("its length is given twice")
    if codings:
        if codings[0].lower() != b"chunked" or request.version == "1.0":
            return bad_request("Transfer-Encoding may only be `chunked`")
        request.chunked = True
    elif lengths:
        if not lengths[0].isdigit():
            return bad_request("Content-Length is not a number")
        request.length = int(lengths[0])
    return None


def admit(request: Request, route: Route) -> Answer | None:
    """Host, Origin, token: None lets it pass. The trade of ``_token`` for a cookie is an answer too."""
    host = (request.get(b"host") or b"").lower()
    own_hosts = (b"127.0.0.1:%d" % route.listen, b"localhost:%d" % route.listen)
    if host not in own_hosts:
        return Answer(421, "wrong_host", f"This port answers to 127.0.0.1:{route.listen} and localhost only.")
    origin = request.get(b"origin")
    if origin is not None and origin not in route.origins and origin not in tuple(b"http://" + h for h in own_hosts):
        return Answer(403, "wrong_origin", "Requests from pages of another origin are refused.")
    if route.token is None:
        return None
    by_cookie = _cookie_matches(request, route)
    if by_cookie and request.get(b"sec-fetch-site") not in (None, b"same-origin", b"none"):
        # Another port of 127.0.0.1 is the same site, so SameSite does not hold its pages off.
        return Answer(403, "wrong_origin", "Requests from pages of another origin are refused.")
    if by_cookie or any(_is_ours(value, route.token) for value in request.all(b"authorization")):
        return None
    if _is_navigation(request) and any(_same(v, route.token) for v in _token_values(request.target)):
        return _trade(request, route, host)
    return UNAUTHORISED


def _same(given: bytes, token: bytes) -> bool:
    return hmac.compare_digest(given, token)


def _is_ours(authorization: bytes, token: bytes) -> bool:
    scheme, _, credential = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and _same(credential.strip(), token)


def _cookie_matches(request: Request, route: Route) -> bool:
    assert route.token is not None
    names = (COOKIE, COOKIE + b"_%d" % route.listen)
    found = False
    for header in request.all(b"cookie"):
        for pair in header.split(b";"):
            name, _, value = pair.strip().partition(b"=")
            if name in names and _same(value, route.token):
                found = True
    return found


def _token_values(target: bytes) -> Iterable[bytes]:
    for pair in target.partition(b"?")[2].split(b"&"):
        name, _, value = pair.partition(b"=")
        if name == TOKEN_PARAMETER:
            yield value


def without_token(target: bytes, token: bytes) -> bytes:
    """The target without ``_token`` where its value is ours; a server's own parameter of that name stays."""
    path, mark, query = target.partition(b"?")
    if TOKEN_PARAMETER not in query:
        return target
    kept = [
        pair
        for pair in query.split(b"&")
        if not (pair.startswith(TOKEN_PARAMETER + b"=") and _same(pair[len(TOKEN_PARAMETER) + 1 :], token))
    ]
    return path + mark + b"&".join(kept) if kept else path


def _is_navigation(request: Request) -> bool:
    if request.method != b"GET":
        return False
    mode = request.get(b"sec-fetch-mode")
    return mode == b"navigate" if mode is not None else b"text/html" in (request.get(b"accept") or b"")


def _trade(request: Request, route: Route, host: bytes) -> Answer:
    """Set the cookie and go to the same URL without the token."""
    assert route.token is not None
    where = b"http://" + host + without_token(request.target, route.token)
    cookie = b"Set-Cookie: %s_%d=%s; Path=/; HttpOnly; SameSite=Strict" % (COOKIE, route.listen, route.token)
    quiet = b"Referrer-Policy: no-referrer"
    if request.get(b"sec-fetch-site") in (None, b"none", b"same-origin"):
        return Answer(303, "traded", "The token is kept in a cookie now.", (cookie, quiet, b"Location: " + where))
    # Came by a link on another site: a Strict cookie is not sent along such a redirect, so our own page goes on.
    for raw, escaped in ((b"&", b"&amp;"), (b'"', b"&quot;"), (b"<", b"&lt;"), (b">", b"&gt;")):
        where = where.replace(raw, escaped)
    html = b'<!doctype html><meta http-equiv="refresh" content="0;url=%s"><title>mcpiac</title>\n' % where
    return Answer(200, "traded", "", (cookie, quiet), html=html)


def _named_by_connection(values: Iterable[bytes]) -> frozenset[bytes]:
    named = {part.strip().lower() for value in values for part in value.split(b",")}
    return frozenset(named) - _FRAMING


def request_head(request: Request, route: Route) -> bytes:
    """The head that the server gets: our credentials and hop-by-hop headers gone, Host that of the server itself.

    Host (and an own Origin) become ``127.0.0.1:<port>``, since servers refuse names that they do not know.
    """
    server = b"127.0.0.1:%d" % route.port
    target = request.target if route.token is None else without_token(request.target, route.token)
    lines = [request.method + b" " + target + b" HTTP/1.1", b"Host: " + server]
    dropped = HOP_BY_HOP | _WRITTEN_ANEW | _named_by_connection(request.all(b"connection"))
    for name, lower, value in request.headers:
        if lower in dropped:
            continue
        if lower == b"cookie":
            value = strip_cookies(value)
            if not value:
                continue
        elif lower == b"authorization" and route.token is not None and _is_ours(value, route.token):
            continue
        elif lower == b"origin" and value not in route.origins:
            value = b"http://" + server
        lines.append(name + b": " + value)
    if request.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    lines.append(b"X-Forwarded-Host: " + (request.get(b"host") or b""))
    lines.append(b"X-Forwarded-Proto: http\r\n\r\n")
    return b"\r\n".join(lines)


def strip_cookies(value: bytes) -> bytes:
    """A Cookie header without ours."""
    if COOKIE not in value:
        return value
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair and not _OURS.match(pair.partition(b"=")[0].strip()))


def is_stream(request: Request) -> bool:
    """Whether it may stay open for ever without keeping its sandbox awake (the response may still say otherwise)."""
    if request.method == b"GET":
        return b"text/event-stream" in (request.get(b"accept") or b"").lower()
    return request.method == b"POST" and request.get(b"mcp-method") == b"subscriptions/listen"


_COMMENTS = re.compile(rb"(?::[^\r\n]*|)(?:\r?\n(?::[^\r\n]*|))*")


def is_keepalive(data: bytes) -> bool:
    """Whether a piece of an event stream holds comments alone: a way to keep the connection, no use of it."""
    return len(data) <= 256 and _COMMENTS.fullmatch(data) is not None


@dataclass(slots=True)
class Response:
    """One response head as the parser gave it."""

    status: int = 0
    reason: bytes = b""
    headers: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    chunked: bool = False
    length: int | None = None

    def all(self, name: bytes) -> list[bytes]:
        return [value for _, lower, value in self.headers if lower == name]

    @property
    def event_stream(self) -> bool:
        return any(value.lower().startswith(b"text/event-stream") for value in self.all(b"content-type"))


def response_form(response: Response) -> str | None:
    """Fills in the framing; says what is wrong with a response that cannot be passed on."""
    codings, lengths = response.all(b"transfer-encoding"), response.all(b"content-length")
    if response.status < 200 or response.status > 999:
        return f"status {response.status}"
    if codings:
        if lengths or len(codings) > 1 or codings[0].lower() != b"chunked":
            return "its Transfer-Encoding is not plainly `chunked`"
        response.chunked = True
    elif lengths:
        if len(lengths) > 1 or not lengths[0].isdigit():
            return "its Content-Length is not a number"
        response.length = int(lengths[0])
    return None


def response_head(response: Response, request: Request, route: Route, *, chunk: bool, close: bool) -> bytes:
    """The head that the client gets. A Location that names the server itself is turned into the hosted URL."""
    lines = [b"HTTP/1.1 %d %s" % (response.status, response.reason)]
    dropped = HOP_BY_HOP | _named_by_connection(response.all(b"connection"))
    for name, lower, value in response.headers:
        if lower in dropped or (lower == b"set-cookie" and _OURS.match(value.partition(b"=")[0].strip())):
            continue
        if lower == b"location":
            own = b"http://127.0.0.1:%d" % route.port
            if value == own or value.startswith(own + b"/"):
                value = b"http://" + (request.get(b"host") or b"") + value[len(own) :]
        lines.append(name + b": " + value)
    if chunk:
        lines.append(b"Transfer-Encoding: chunked")
    if close:
        lines.append(b"Connection: close")
    elif request.version == "1.0":
        lines.append(b"Connection: keep-alive")
    return b"\r\n".join(lines) + b"\r\n\r\n"
