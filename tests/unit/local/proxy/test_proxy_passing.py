"""What is passed on, and how: streaming both ways, keep-alive, aborts, wakes, states, the idle clock."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import h11
import pytest

from mcpiac.local import proxy as proxy_module
from mcpiac.local import proxy_client
from mcpiac.local.hosting import HostingError
from mcpiac.local.proxy import Condition, Unavailable
from mcpiac.local.proxy_rules import Route

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


async def head(reader: Reader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_requests_and_answers_pass_and_connections_are_kept_on_both_sides(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for number in range(5):
                answer = await client.ask("POST", f"/mcp?n={number}", body=b"x" * number)
                assert (answer.status, answer.body) == (200, b"ok")
        assert len(world.connections) == 1
        assert world.seen[-2].startswith(b"POST /mcp?n=4 HTTP/1.1\r\nHost: 127.0.0.1:")
        assert world.seen[-1] == b"xxxx"
        assert b"__sbx_auth" not in b"".join(world.seen)

    proxied.run(conversation)


def test_events_come_through_one_by_one_and_a_comment_is_no_activity(proxied: Any) -> None:
    go_on, go_on_again = asyncio.Event(), asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunk(b": keep-alive\n\n"))
        await go_on_again.wait()
        writer.write(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.send(h11.Request(method="GET", target="/", headers=client.head("GET", "/")))
            await client.send(h11.EndOfMessage())
            assert isinstance(await client.event(), h11.Response)
            assert bytes((await client.event()).data) == b"data: 1\n\n"
            assert (world.guests.busy, world.guests.streams) == (0, 1)  # found out by the response
            moved = world.guests.told.count(("bytes", True))
            go_on.set()
            assert bytes((await client.event()).data) == b": keep-alive\n\n"
            assert world.guests.told.count(("bytes", True)) == moved
            go_on_again.set()
            assert bytes((await client.event()).data) == b"data: 2\n\n"
            assert world.guests.told.count(("bytes", True)) == moved + 1
            assert isinstance(await client.event(), h11.EndOfMessage)
        await world.until(lambda: world.guests.streams == 0)

    proxied.run(conversation, handler)


def test_an_upload_comes_through_piece_by_piece(proxied: Any) -> None:
    got = asyncio.Queue[bytes]()

    async def handler(reader: Reader, writer: Writer) -> None:
        sent = await head(reader)
        assert b"Transfer-Encoding: chunked" in sent
        for _ in range(3):
            size = int(await reader.readline(), 16)
            got.put_nowait(await reader.readexactly(size))
            await reader.readexactly(2)
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            made = [*client.head("POST", "/"), ("Transfer-Encoding", "chunked")]
            await client.send(h11.Request(method="POST", target="/", headers=made))
            for piece in (b"one", b"two", b"three"):
                await client.send(h11.Data(data=piece))
                assert await got.get() == piece
            await client.send(h11.EndOfMessage(headers=[("X-Trailer", "dropped")]))
            assert (await client.answer()).status == 200

    proxied.run(conversation, handler)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", None)),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 9\r\n\r\n", (304, b"", "9")),
        (b"HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n", (200, b"", "0")),
        (
            b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: trailer\r\n\r\n",
            (202, b"a", None),
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            (200, b"a", "1"),
        ),
    ],
)
def test_every_form_of_answer(answer: bytes, expected: Any, proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        while True:
            await head(reader)
            writer.write(answer)

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for _ in range(2):
                got = await client.ask()
                assert (got.status, got.body, got.headers.get("content-length")) == expected
                assert got.interim == []
        assert len(world.connections) == 1

    proxied.run(conversation, handler)


def test_head_has_the_headers_and_no_body(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        while sent := await head(reader):
            body = b"" if sent.startswith(b"HEAD") else b"x" * 10
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + body)

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            got = await client.ask("HEAD")
            assert (got.status, got.headers["content-length"], got.body) == (200, "10", b"")
            assert (await client.ask()).body == b"x" * 10

    proxied.run(conversation, handler)


def test_an_answer_that_ends_with_the_connection(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for _ in range(2):
                got = await client.ask()
                assert got.body == b"until the end"
                assert got.headers["transfer-encoding"] == "chunked"
        async with world.client() as client:
            await client.raw(
                b"GET / HTTP/1.0\r\nHost: 127.0.0.1:@PORT@\r\nCookie: __sbx_auth=" + proxied.TOKEN + b"\r\n\r\n"
            )
            got = await client.rest()
            assert got.endswith(b"\r\n\r\nuntil the end")
            assert b"Transfer-Encoding" not in got

    proxied.run(conversation, handler)


def test_pipelined_requests_are_answered_in_order(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        while sent := await head(reader):
            path = sent.split(b" ")[1]
            await asyncio.sleep(0.01)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    async def conversation(world: Any) -> None:
        one = b"GET /%d HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nCookie: __sbx_auth=" + proxied.TOKEN + b"\r\n\r\n"
        async with world.client() as client:
            await client.raw(b"".join(one % number for number in range(20)))
            got = b""
            while got.count(b"HTTP/1.1 200") < 20 or not got.endswith(b"/19"):
                got += await client.reader.read(1000)
            bodies = [part.rpartition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.1 200 OK")[1:]]
            assert bodies == [b"/%d" % number for number in range(20)]

    proxied.run(conversation, handler)


def test_expect_continue_is_answered_once_the_token_was_right(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        async with world.client() as client:
            made = [*client.head("POST", "/"), ("Content-Length", "3"), ("Expect", "100-continue")]
            await client.send(h11.Request(method="POST", target="/", headers=made))
            assert (await client.event()).status_code == 100
            await client.send(h11.Data(data=b"abc"))
            await client.send(h11.EndOfMessage())
            assert (await client.answer()).status == 200
        assert b"expect" not in world.seen[0].lower()
        async with world.client() as client:
            made = [*client.head("POST", "/", token=None), ("Content-Length", "3"), ("Expect", "100-continue")]
            await client.send(h11.Request(method="POST", target="/", headers=made))
            got = await client.answer()
            assert (got.status, got.interim) == (401, [])

    proxied.run(conversation)


# -- faults and aborts


def test_a_client_that_goes_away_is_seen_by_the_server(proxied: Any) -> None:
    gone = asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"first"))
        try:
            assert await reader.read(1) == b""
        except ConnectionResetError:
            pass
        gone.set()

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.send(h11.Request(method="GET", target="/", headers=client.head("GET", "/")))
            await client.send(h11.EndOfMessage())
            await client.event()
        await gone.wait()
        await world.until(lambda: world.guests.busy == 0 and bool(world.access))
        assert world.access[0].aborted

    proxied.run(conversation, handler)


def test_a_client_that_goes_away_before_the_answer_is_seen_too(proxied: Any) -> None:
    gone = asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        try:
            await reader.read(1)
        except ConnectionResetError:
            pass
        gone.set()

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.send(h11.Request(method="GET", target="/", headers=client.head("GET", "/")))
            await client.send(h11.EndOfMessage())
            await world.until(lambda: len(world.connections) == 1)
        await gone.wait()
        await world.until(lambda: world.guests.busy == 0)

    proxied.run(conversation, handler)


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_an_answer_that_breaks_off_is_not_taken_for_complete(framing: bytes, proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + (chunk(b"ab") if b"chunked" in framing else b"ab")
        )
        await writer.drain()

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            with pytest.raises((h11.RemoteProtocolError, ConnectionResetError)):
                await client.ask()
        assert world.guests.busy == 0

    proxied.run(conversation, handler)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 400_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
    ],
)
def test_a_server_that_answers_wrongly_is_a_bad_gateway_with_words(answer: bytes, proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(answer)

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            got = await client.ask("POST", body=b"{}")
            assert got.status == 502
            assert b"mcpiac logs files" in got.body
        assert world.guests.busy == 0

    proxied.run(conversation, handler)


def test_bytes_after_an_answer_never_become_the_next_one(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        while await head(reader):
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
            )

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for _ in range(3):
                assert (await client.ask()).body == b"a"
        assert len(world.connections) == 3

    proxied.run(conversation, handler)


def test_a_kept_connection_that_the_server_closed_is_not_used(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
        await writer.drain()

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            for _ in range(10):
                assert (await client.ask("POST", body=b"{}")).status == 200

    proxied.run(conversation, handler)


def test_a_server_that_closes_on_the_second_request_gets_a_get_again_and_a_post_never(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
        await head(reader)  # read, and dropped

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            assert [(await client.ask()).status for _ in range(4)] == [200] * 4
            assert (await client.ask("POST", body=b"{}")).status == 502

    proxied.run(conversation, handler)


def test_an_early_answer_to_an_unfinished_upload(proxied: Any) -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 1\r\nConnection: close\r\n\r\na")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            cookie = b"Cookie: __sbx_auth=" + proxied.TOKEN
            await client.raw(
                b"POST / HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Length: 1000000\r\n" + cookie + b"\r\n\r\nabc"
            )
            got = await client.rest()
            assert got.startswith(b"HTTP/1.1 413 Too Large\r\n")
            assert got.endswith(b"\r\n\r\na")
        assert world.guests.busy == 0

    proxied.run(conversation, handler)


def test_a_client_that_goes_away_while_the_server_takes_no_more_is_seen(
    proxied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "_SWEEP_SECONDS", 0.02)
    never = asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await never.wait()

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            cookie = b"Cookie: __sbx_auth=" + proxied.TOKEN
            head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Length: 90000000\r\n"
            await client.raw(head + cookie + b"\r\n\r\n")
            flood = asyncio.create_task(client.raw(b"x" * 90_000_000))
            listener = world.proxy._listeners[world.listen]
            await world.until(lambda: any(not each._reading for each in listener.clients))
            assert world.guests.busy == 1
            flood.cancel()
        await world.until(lambda: world.guests.busy == 0)

    proxied.run(conversation, handler, server_limit=1000)


# -- waking, states


def test_a_request_is_held_while_its_sandbox_wakes_and_many_wake_it_once(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        world.guests.paused = True

        async def ask(number: int) -> int:
            async with world.client() as client:
                return int((await client.ask("POST", body=b"x" * 1000)).status)

        tasks = [asyncio.create_task(ask(number)) for number in range(20)]
        await world.until(lambda: world.guests.busy == 20)
        assert world.seen == []
        tasks[0].cancel()  # one that gives up takes the wake from nobody
        await world.until(lambda: world.guests.busy == 19)
        world.guests.woken.set()
        assert await asyncio.gather(*tasks[1:]) == [200] * 19
        assert world.guests.wakes == 1
        assert world.guests.busy == 0

    proxied.run(conversation)


def test_a_wake_that_takes_too_long_is_504_and_still_goes_on(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        world.guests.paused = True
        async with world.client() as client:
            assert (await client.ask()).status == 504
            world.guests.woken.set()
            await world.until(lambda: not world.guests.paused)
            assert (await client.ask()).status == 200
        assert world.guests.wakes == 1

    proxied.run(conversation, wake_seconds=0.05)


def test_an_upload_is_not_held_in_memory_while_its_sandbox_wakes(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        world.guests.paused = True
        async with world.client() as client:
            cookie = b"Cookie: __sbx_auth=" + proxied.TOKEN
            await client.raw(
                b"POST / HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Length: 50000000\r\n" + cookie + b"\r\n\r\n"
            )
            await world.until(lambda: world.guests.busy == 1)
            await world.until(lambda: world.guests.wakes == 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    for _ in range(50):
                        await client.raw(b"x" * 1_000_000)

    proxied.run(conversation)


@pytest.mark.parametrize("state", ["expired", "stopped", "error", "gone"])
def test_a_sandbox_that_is_not_to_be_woken_is_503_with_what_to_type(state: str, proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        world.guests.paused = True
        world.guests.failure = Unavailable(Condition(state, "Its time ended. Type: mcpiac apply --renew"))
        async with world.client() as client:
            got = await client.ask()
            assert got.status == 503
            assert f'"sandbox_{state}"'.encode() in got.body
            assert b"mcpiac apply --renew" in got.body
            assert (await client.ask(token=None)).status == 401
        assert world.guests.busy == 0

    proxied.run(conversation)


def test_nothing_listens_is_502_with_words_and_a_starting_server_is_waited_for(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        port, listen = proxied.free_port(), proxied.free_port()
        await world.proxy.open(Route("sandbox", port, listen, proxied.TOKEN))
        async with world.client(listen) as client:
            got = await client.ask()
            assert got.status == 502
            assert b"server_not_listening" in got.body
            assert b"mcpiac logs files" in got.body
            world.guests.condition = Condition("starting", "")
            asked = asyncio.create_task(client.ask())
            await world.until(lambda: world.guests.busy == 1)

            async def answer(reader: Reader, writer: Writer) -> None:
                await head(reader)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

            server = await asyncio.start_server(answer, "127.0.0.1", port)
            assert (await asked).status == 200
            server.close()

    proxied.run(conversation)


def test_a_server_on_the_other_loopback_is_found(proxied: Any) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")

    async def conversation(world: Any) -> None:
        async def answer(reader: Reader, writer: Writer) -> None:
            await head(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        server = await asyncio.start_server(answer, "::1", 0)
        listen = proxied.free_port()
        await world.proxy.open(Route("sandbox", server.sockets[0].getsockname()[1], listen, proxied.TOKEN))
        async with world.client(listen) as client:
            assert (await client.ask()).status == 200
        server.close()

    proxied.run(conversation)


def test_one_stuck_server_slows_no_other(proxied: Any) -> None:
    stuck = asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await stuck.wait()  # never reads

    async def conversation(world: Any) -> None:
        async def answer(reader: Reader, writer: Writer) -> None:
            while await head(reader):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        listen = proxied.free_port()
        await world.proxy.open(Route("other", server.sockets[0].getsockname()[1], listen, proxied.TOKEN))
        async with world.client() as stuck_client, world.client(listen) as client:
            cookie = b"Cookie: __sbx_auth=" + proxied.TOKEN
            await stuck_client.raw(
                b"POST / HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Length: 90000000\r\n" + cookie + b"\r\n\r\n"
            )
            flood = asyncio.create_task(stuck_client.raw(b"x" * 90_000_000))
            await world.until(lambda: world.guests.busy == 1)
            loop = asyncio.get_running_loop()
            for _ in range(50):
                start = loop.time()
                assert (await client.ask()).status == 200
                assert loop.time() - start < 0.5
            assert not flood.done()
            flood.cancel()
        server.close()

    proxied.run(conversation, handler)


# -- the idle clock


@pytest.mark.parametrize(
    ("method", "headers", "kind", "during"),
    [
        ("POST", (), b"application/json", (1, 0)),
        ("POST", (("Accept", "application/json, text/event-stream"),), b"text/event-stream", (1, 0)),
        ("POST", (("Mcp-Method", "subscriptions/listen"),), b"text/event-stream", (0, 1)),
        ("GET", (("Accept", "text/event-stream"),), b"text/event-stream", (0, 1)),
        ("GET", (("Accept", "text/event-stream"),), b"text/plain", (1, 0)),
        ("GET", (), b"text/plain", (1, 0)),
    ],
)
def test_what_keeps_a_sandbox_awake(method: str, headers: Any, kind: bytes, during: Any, proxied: Any) -> None:
    go_on = asyncio.Event()

    async def handler(reader: Reader, writer: Writer) -> None:
        await head(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"a")
        )
        await go_on.wait()
        writer.write(chunk(b"b") + b"0\r\n\r\n")

    async def conversation(world: Any) -> None:
        async with world.client() as client:
            await client.send(h11.Request(method=method, target="/", headers=[*client.head(method, "/", headers)]))
            await client.send(h11.EndOfMessage())
            await client.event()
            await client.event()
            assert (world.guests.busy, world.guests.streams) == during
            before = world.guests.told.count(("bytes", during == (0, 1)))
            assert before >= 1
            go_on.set()
            assert bytes((await client.event()).data) == b"b"
            assert world.guests.told.count(("bytes", during == (0, 1))) > before
            await client.event()
        assert (world.guests.busy, world.guests.streams) == (0, 0)

    proxied.run(conversation, handler)


# -- listeners


def test_hide_closes_the_url_and_hosting_again_opens_the_same(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        route = world.proxy.routes()[0]
        async with world.client() as client:
            assert (await client.ask()).status == 200
            world.proxy.hide(route.listen)
            assert await client.rest() in (b"", b"<reset>")
        with pytest.raises(ConnectionRefusedError):
            async with world.client():
                pass
        await world.proxy.open(route)
        async with world.client() as client:
            assert (await client.ask()).status == 200

    proxied.run(conversation)


def test_a_new_token_counts_at_once_and_the_old_one_no_more(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        route = world.proxy.routes()[0]
        async with world.client() as client:
            assert (await client.ask()).status == 200
            await world.proxy.open(Route(route.sandbox, route.port, route.listen, b"new"))
            assert (await client.ask()).status == 401
            assert (await client.ask(token=b"new")).status == 200
            await world.proxy.open(Route(route.sandbox, route.port, route.listen, None))
            assert (await client.ask(token=None)).status == 200

    proxied.run(conversation)


def test_a_port_that_another_program_has_is_an_error(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(HostingError) as raised:
                await world.proxy.open(Route("sandbox", 8000, port, b"x"))
            assert raised.value.code == "port_taken"
            assert str(port) in raised.value.message
        await world.proxy.open(Route("sandbox", 8000, port, b"x"))

    proxied.run(conversation)


def test_it_listens_on_loopback_only(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        addresses = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.partition(":")[2], 16) == world.listen:
                addresses.add(local.partition(":")[0])
        assert addresses == {"0100007F"}

    proxied.run(conversation)


def test_slow_heads_and_idle_connections_are_closed(proxied: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_client, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(proxy_client, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(proxy_module, "_SWEEP_SECONDS", 0.02)

    async def conversation(world: Any) -> None:
        async with world.client() as slow, world.client() as idle, world.client() as quiet:
            await slow.raw(b"GET / HTTP/1.1\r\nHost: ")
            assert (await idle.ask()).status == 200
            for each in (slow, idle, quiet):
                assert await each.rest() in (b"", b"<reset>")
        await world.until(lambda: world.proxy._sweep is None)

    proxied.run(conversation)


def test_a_listener_has_a_bound_of_connections(proxied: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "CLIENTS_MAX", 3)

    async def conversation(world: Any) -> None:
        async with world.client() as first, world.client() as second, world.client() as third:
            for each in (first, second, third):
                assert (await each.ask()).status == 200
            async with world.client() as fourth:
                assert await fourth.rest() in (b"", b"<reset>")
            assert (await first.ask()).status == 200
        await world.until(lambda: not world.proxy._listeners[world.listen].clients)
        async with world.client() as again:
            assert (await again.ask()).status == 200

    proxied.run(conversation)


def test_the_access_log_holds_no_query_no_token_and_no_body(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        token = proxied.TOKEN.decode()
        async with world.client() as client:
            await client.ask("POST", f"/mcp?_token={token}&q=hush", [("Authorization", "Bearer hush")], b"hush")
            await client.ask(target=f"/?_token={token}", token=None)
        assert [(line.method, line.path, line.status, line.received, line.sent) for line in world.access] == [
            ("POST", "/mcp", 200, 4, 2),
            ("GET", "/", 401, 0, 0),
        ]
        assert token not in repr(world.access)
        assert "hush" not in repr(world.access)

    proxied.run(conversation)


def test_no_task_timer_or_connection_is_left(proxied: Any) -> None:
    async def conversation(world: Any) -> None:
        async with world.client() as client:
            assert (await client.ask()).status == 200
        world.proxy.close()
        await world.until(lambda: not world.proxy.pool._open)
        assert world.proxy._sweep is None
        assert world.proxy.pool._sweep is None
        assert world.proxy.routes() == []

    proxied.run(conversation)


# -- memory


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_hundred_megabytes_are_not_held(direction: str) -> None:
    """The proxy in a process of its own; the far end reads nothing at first, then all."""
    program = Path(__file__).with_name("hundred_megabytes.py")
    done = subprocess.run(
        [sys.executable, str(program), direction], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    grown, passed = map(int, done.stdout.split())
    assert passed == 100 * 1024 * 1024
    assert grown < 12 * 1024, f"{grown} KiB"
