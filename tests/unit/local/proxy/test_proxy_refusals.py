"""Requests that are never passed on, sent raw: the server must not see a byte of them, nothing may be woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nCookie: __sbx_auth=TOKEN\r\n"
GET = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nCookie: __sbx_auth=TOKEN\r\n"
COOKIE = b"Cookie: __sbx_auth=TOKEN\r\n"

SMUGGLING = {
    "two lengths that differ": (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "two lengths that agree": (HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "a list of lengths": (HEAD + b"Content-Length: 3, 3\r\n\r\nabc", 400),
    "length then chunked": (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked then length": (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    "signed length": (HEAD + b"Content-Length: +3\r\n\r\nabc", 400),
    "negative length": (HEAD + b"Content-Length: -3\r\n\r\nabc", 400),
    "hexadecimal length": (HEAD + b"Content-Length: 0x3\r\n\r\nabc", 400),
    "empty length": (HEAD + b"Content-Length: \r\n\r\nabc", 400),
    "length beyond 64 bits": (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc", 400),
    "blank before the colon of a length": (HEAD + b"Content-Length : 3\r\n\r\nabc", 400),
    "blank before the colon of a coding": (HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "tab in a header name": (HEAD + b"X\tY: 1\r\nContent-Length: 0\r\n\r\n", 400),
    "unknown coding": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "coding in quotes": (HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', 400),
    "gzip and chunked": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked and identity": (HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
    "two codings": (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "coding with vertical tab": (HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked in HTTP/1.0": (HEAD.replace(b"1.1", b"1.0", 1) + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunk size with 0x": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size with sign": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk size beyond 64 bits": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        400,
    ),
    "chunk longer than its size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400),
    "chunk with bare line feed": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400),
    "chunk extension with bare line feed": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
        400,
    ),
    "folded header": (GET + b"X: a\r\n b\r\n\r\n", 400),
    "folded coding": (HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    "first header begins with a blank": (b"GET / HTTP/1.1\r\n Host: 127.0.0.1:@PORT@\r\n" + COOKIE + b"\r\n", 400),
    "header without name": (GET + b": x\r\n\r\n", 400),
    "header without colon": (GET + b"nonsense\r\n\r\n", 400),
    "header name with blank": (GET + b"X Y: 1\r\n\r\n", 400),
    "NUL in a value": (GET + b"X: a\x00b\r\n\r\n", 400),
    "bare CR in a value": (GET + b"X: a\rb\r\n\r\n", 400),
    "bare LF between headers": (GET + b"X: a\nY: b\r\n\r\n", 400),
    "bare LF throughout": (GET.replace(b"\r\n", b"\n") + b"\n", 400),
    "two Host headers": (GET + b"Host: 127.0.0.1:@PORT@\r\n\r\n", 400),
    "no Host": (b"GET / HTTP/1.1\r\n" + COOKIE + b"\r\n", 400),
    "absolute target": (GET.replace(b"/mcp", b"http://evil.example/", 1) + b"\r\n", 400),
    "asterisk target": (GET.replace(b"GET /mcp", b"OPTIONS *", 1) + b"\r\n", 400),
    "CONNECT": (GET.replace(b"GET /mcp", b"CONNECT 127.0.0.1:22", 1) + b"\r\n", 400),
    "blank in the target": (GET.replace(b"/mcp", b"/mcp HTTP/1.1 x", 1) + b"\r\n", 400),
    "unknown method": (GET.replace(b"GET", b"G@T", 1) + b"\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "HTTP/2.0": (GET.replace(b"HTTP/1.1", b"HTTP/2.0", 1) + b"\r\n", 505),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "WebSocket": (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 501),
    "h2c with a body": (HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc", 501),
    "large head": (GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    "many headers": (GET + b"X: 1\r\n" * 200 + b"\r\n", 431),
    "large head that never ends": (GET + b"X: " + b"a" * 400_000, 431),
    "large target": (GET.replace(b"/mcp", b"/" + b"a" * 70_000, 1) + b"\r\n", 431),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_malformed_requests_are_refused_and_reach_nobody(name: str, proxied: Any) -> None:
    data, status = SMUGGLING[name]
    data = data.replace(b"TOKEN", proxied.TOKEN)

    async def conversation(world: Any) -> None:
        world.guests.paused = True
        async with world.client() as client:
            # What follows must not be taken for a request either.
            await client.raw(data + b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\n" + COOKIE + b"\r\n")
            answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert answer.count(b"HTTP/1.1 ") == 1, answer
        assert b"Connection: close\r\n" in answer
        assert world.seen == []
        assert world.guests.wakes == 0
        assert world.guests.busy == world.guests.streams == 0

    proxied.run(conversation)


@pytest.mark.parametrize("name", [name for name, (data, _) in SMUGGLING.items() if len(data) < 5_000])
def test_the_same_a_byte_at_a_time(name: str, proxied: Any) -> None:
    data, status = SMUGGLING[name]
    data = data.replace(b"TOKEN", proxied.TOKEN)

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for byte in data.replace(b"@PORT@", b"%d" % client.port):
                client.writer.write(bytes([byte]))
                await client.writer.drain()
            answer = await client.rest() if status else b""
        if answer != b"<reset>":  # bytes after the refusal may meet a closed connection
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert world.seen == []

    proxied.run(conversation)


def test_a_bad_chunk_after_a_good_one_is_not_taken_for_the_end(proxied: Any) -> None:
    """The server has part of the body by then: it must see the connection break, never a complete request."""
    ended: list[str] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b""
        try:
            while data := await reader.read(1000):
                body += data
        except ConnectionResetError:
            pass
        ended.append("complete" if body.endswith(b"0\r\n\r\n") else "broken")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.raw(
                HEAD.replace(b"TOKEN", proxied.TOKEN) + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
            )
            await world.until(lambda: len(world.connections) == 1)
            await client.raw(b"zz\r\n")
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 400 ")
        await world.until(lambda: bool(ended))
        assert ended == ["broken"]
        assert world.guests.busy == 0

    proxied.run(conversation, handler)


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ((), None, 401),
        ((), b"wrong", 401),
        ((("Origin", "http://evil.example"),), b"right", 403),
    ],
)
def test_refusals_wake_nothing_and_keep_the_connection(headers: Any, token: Any, status: int, proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        world.guests.paused = True
        async with world.client() as client:
            for _ in range(3):
                answer = await client.ask(headers=headers, token=proxied.TOKEN if token == b"right" else token)
                assert answer.status == status
                assert "www-authenticate" not in answer.headers
                assert answer.headers["content-type"] == "application/json"
            world.guests.paused = False
            assert (await client.ask()).status == 200
        assert world.guests.wakes == 0
        assert world.guests.told == [("begin", False), ("bytes", False), ("end", False)]
        assert len(world.seen) == 1

    proxied.run(conversation)


def test_a_wrong_host_is_refused_before_the_token_is_looked_at(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.raw(b"GET / HTTP/1.1\r\nHost: rebound.example:@PORT@\r\n\r\n")
            assert (await client.answer()).status == 421

    proxied.run(conversation)


def test_a_refused_upload_is_answered_without_reading_it_all(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.raw(
                b"POST / HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 1000
            )
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"Connection: close\r\n" in answer

    proxied.run(conversation)


def test_endless_trailers_and_chunk_extensions_are_cut_off(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        for endless in (b"0\r\nX: " + b"a" * 1000, b"3;" + b"a" * 1000):
            async with world.client() as client:
                head = HEAD.replace(b"TOKEN", proxied.TOKEN) + b"Transfer-Encoding: chunked\r\n\r\n"
                await client.raw(head + endless)
                sent = 0
                try:
                    while not client.reader.at_eof() and sent < 4_000_000:
                        client.writer.write(b"a" * 20_000)
                        await client.writer.drain()
                        await asyncio.sleep(0)
                        sent += 20_000
                        if client.reader._buffer:  # type: ignore[attr-defined]
                            break
                except ConnectionError:
                    pass
                assert sent < 4_000_000
                assert (await client.rest()).startswith((b"HTTP/1.1 431 ", b"<reset>"))

    proxied.run(conversation)
