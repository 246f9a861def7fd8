"""The bridge as a process, with real servers, through a client made by hand."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from tests.bridge.bridge_kit import BOTH, MODERN, Bridge, Client, events, eventually, modern, request, server


def test_a_session_from_initialize_to_delete():
    with Bridge(server("good_legacy")) as bridge:
        client = Client(bridge.port)
        assert client.initialize()["result"]["serverInfo"]["name"] == "good_legacy"
        assert client.echo("hé\u2028")["result"]["content"][0]["text"] == "hé\u2028"
        assert client.delete() == 200
        assert client.send({"jsonrpc": "2.0", "id": 5, "method": "ping"})[0] == 404
        eventually(lambda: bridge.health()["children"] == 0)


def test_ids_numbers_and_unknown_fields_pass_unchanged():
    with Bridge(server("mirror")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        for raw in ("123456789012345678901234567890", "1.0", '"1"', '"\\ud83d\\ude00"', "-0", "1e3", '"é"'):
            body = (
                '{"jsonrpc":"2.0","x-extra":[1.10,{"a":1E400}],\n "id":' + raw + ',"method":"mirror",'
                '"params":{"n":9007199254740993,"s":"\\ud800","d":0.1000}}'
            )
            _, headers, texts = client.send(body)
            assert headers["content-type"] == "application/json"
            sent = body.replace("\n", " ")
            assert texts == ['{"jsonrpc":"2.0","id":' + raw + ',"result":{"got":' + sent + '}, "more" : 1.50}']


def test_a_crash_fails_what_is_pending_at_once_then_404_then_a_new_session_works():
    with Bridge(server("exit_on_third_call")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        client.echo("a", 1)
        client.echo("b", 2)
        error = client.echo("c", 3)["error"]
        assert error["code"] == -32000
        assert "exit 1" in error["message"]
        assert client.send({"jsonrpc": "2.0", "id": 4, "method": "ping"})[0] == 404
        again = Client(bridge.port)
        again.initialize()
        assert again.echo("d")["result"]["content"][0]["text"] == "d"


def test_a_server_that_cannot_start_says_why():
    with Bridge(server("dies_at_start")) as bridge:
        error = Client(bridge.port).initialize()["error"]
        assert "exit 1" in error["message"]
        assert "cannot start: missing API key" in error["message"]
        status, _, body = request(bridge.port, "GET", "/healthz?start=1")
        assert status == 503
        assert json.loads(body)["server"]["failure"]["status"] == "exit 1"
    with Bridge(["/nonexistent/server"]) as bridge:
        error = Client(bridge.port).initialize()["error"]
        assert "cannot start server: No such file or directory" in error["message"]


def test_health_starts_a_child_and_the_next_session_uses_it():
    with Bridge(server("good_legacy")) as bridge:
        assert bridge.health()["status"] == "untried"
        assert bridge.health("?start=1")["status"] == "ok"
        Client(bridge.port).initialize()
        health = bridge.health()
        assert health["counters"]["children"] == 1
        assert health["sessions"] == 1


@pytest.mark.parametrize("name", ["good_legacy", "good_dual", "good_modern"])
def test_both_eras_to_every_server(name):
    with Bridge(server(name)) as bridge:
        status, answer = modern(bridge.port, "server/discover")
        if name == "good_legacy":
            assert status == 400
            assert answer["error"]["code"] == -32022
            assert "2025-11-25" in answer["error"]["data"]["supported"]
        else:
            assert answer["result"]["supportedVersions"] == [MODERN]
        status, answer = modern(bridge.port, "tools/call", {"name": "echo", "arguments": {"text": "m"}})
        assert status == 200
        assert answer["result"]["content"][0]["text"] == "m"
        assert answer["result"]["resultType"] == "complete"
        client = Client(bridge.port)
        assert client.initialize()["result"]["protocolVersion"] == "2025-11-25"
        assert client.echo("l")["result"]["content"][0]["text"] == "l"
        assert client.ask("ping")["result"] == {} or name == "good_legacy"


def test_a_server_that_exits_on_the_probe_serves_the_client_that_falls_back():
    with Bridge(server("exits_on_probe")) as bridge:
        status, answer = modern(bridge.port, "server/discover")
        assert (status, answer["error"]["code"]) == (400, -32022)
        client = Client(bridge.port)
        client.initialize()
        assert client.echo("x")["result"]["content"][0]["text"] == "x"


def test_clients_with_the_same_ids_never_meet():
    with Bridge(server("good_modern")) as bridge:
        wrong: list[str] = []

        def one(number: int) -> None:
            for turn in range(20):
                text = f"{number}-{turn}"
                _, answer = modern(bridge.port, "tools/call", {"name": "echo", "arguments": {"text": text}}, rid=1)
                if answer["id"] != 1 or answer["result"]["content"][0]["text"] != text:
                    wrong.append(text)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert bridge.health()["children"] == 1


def test_progress_makes_an_event_stream_and_no_progress_makes_json():
    with Bridge(server("progress")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}
        assert client.send(call)[1]["content-type"] == "application/json"
        call["params"]["_meta"] = {"progressToken": "t"}
        _, headers, texts = client.send(call)
        assert headers["content-type"] == "text/event-stream"
        methods = [json.loads(t).get("method") for t in texts]
        assert methods == ["notifications/progress"] * 3 + [None]


def test_a_broken_stream_is_resumed_with_last_event_id():
    with Bridge(server("progress")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        call = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "z"}, "_meta": {"progressToken": 1}},
        }
        response = client.open("POST", json.dumps(call).encode())
        stream = events(response)
        first = next(stream)
        assert first[1] == ""  # the priming event of 2025-11-25
        seen = next(stream)
        assert json.loads(seen[1])["params"]["progress"] == 1
        response.connection.close()
        response.close()
        again = client.open("GET", None, {"last-event-id": seen[0]})
        rest = [json.loads(data) for _, data in events(again)]
        assert [m["params"]["progress"] for m in rest[:-1]] == [2, 3]
        assert rest[-1]["result"]["content"][0]["text"] == "z"


def test_requests_of_the_server_reach_the_client_and_its_answers_the_server():
    with Bridge(server("asks_client")) as bridge:
        client = Client(bridge.port)
        client.initialize({"sampling": {}})
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
        stream = events(client.open("POST", json.dumps(call).encode()))
        asked = next(m for m in (json.loads(d) for _, d in stream if d) if "method" in m)
        assert asked["method"] == "sampling/createMessage"
        status, _, _ = client.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"text": "mine"}})
        assert status == 202
        assert json.loads(next(stream)[1])["result"]["content"][0]["text"] == "mine"


def test_hosts_origins_and_malformed_requests_are_refused_as_json():
    with Bridge(server("good_legacy"), "--allow-host", "mcp.example.com") as bridge:
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        cases = [
            ({"host": "evil.example"}, 421),
            ({"host": "127.0.0.1.evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://localhost.evil.example:80"}, 403),
            ({"content-type": "text/plain"}, 415),
            ({"accept": "text/html"}, 406),
            ({}, 400),
            ({"mcp-session-id": "unknown"}, 404),
            ({"host": "mcp.example.com", "origin": "https://mcp.example.com"}, 400),
            ({"host": "localhost:99", "origin": "http://[::1]:3"}, 400),
        ]
        for headers, wanted in cases:
            status, got, body = request(bridge.port, "POST", "/mcp", ping, {**BOTH, **headers})
            assert (headers, status) == (headers, wanted)
            assert got["content-type"] == "application/json"
            assert json.loads(body)["error"]["message"]
        assert request(bridge.port, "POST", "/mcp", b"{nope", BOTH)[0] == 400
        assert request(bridge.port, "GET", "/else")[0] == 404
        assert request(bridge.port, "PUT", "/mcp")[0] == 405
        with socket.create_connection(("127.0.0.1", bridge.port)) as raw:
            raw.sendall(b"\x16\x03\x01\x02\x00garbage\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")
        assert bridge.health()["children"] == 0


def test_it_listens_on_loopback_only():
    with Bridge(server("good_legacy")) as bridge:
        hexport = f"{bridge.port:04X}"
        lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
        listening = [
            line.split()[1] for line in lines if line.split()[1].endswith(":" + hexport) and line.split()[3] == "0A"
        ]
        assert listening == ["0100007F:" + hexport]


def test_a_body_over_the_limit_is_refused_and_one_under_it_passes():
    with Bridge(server("good_legacy"), "--max-body", "1") as bridge:
        client = Client(bridge.port)
        client.initialize()
        assert client.echo("x" * 900_000)["result"]["content"][0]["text"] == "x" * 900_000
        status, _, body = request(bridge.port, "POST", "/mcp", b" " * 1_100_000, client.headers())
        assert status == 413
        assert "1048576" in json.loads(body)["error"]["message"]


def test_nothing_is_left_of_a_server_that_leaves_children_behind():
    with Bridge(server("daemonizes")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        eventually(lambda: len(bridge.left()) >= 5)  # supervisor, worker, server, and two that it started
        assert client.delete() == 200
        eventually(lambda: len(bridge.left()) == 2)


@pytest.mark.parametrize("victim", ["first", "worker", "both"])
def test_a_kill_of_the_bridge_leaves_nothing(victim):
    bridge = Bridge(server("daemonizes") if victim != "both" else server("good_legacy"))
    client = Client(bridge.port)
    client.initialize()
    worker = bridge.worker()
    if victim in ("first", "both"):
        os.kill(bridge.process.pid, signal.SIGKILL)
    if victim in ("worker", "both"):
        os.kill(worker, signal.SIGKILL)
    bridge.process.wait(10)
    eventually(lambda: bridge.left() == [], 15)


def test_a_client_that_leaves_during_initialize_leaves_no_child():
    with Bridge(server("slow_start")) as bridge:
        raw = socket.create_connection(("127.0.0.1", bridge.port))
        body = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
        head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        raw.sendall((head % len(body)).encode() + body)
        eventually(lambda: bridge.health()["children"] == 1)
        raw.close()
        eventually(lambda: bridge.health()["children"] == 0)
        assert bridge.health()["sessions"] == 0


def test_term_answers_what_is_pending_and_exits_with_0():
    with Bridge(server("slow_answers")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        got: list[dict] = []
        thread = threading.Thread(target=lambda: got.append(client.echo("late")))
        thread.start()
        eventually(lambda: bridge.health()["pending"] == 1)
        bridge.process.terminate()
        thread.join(10)
        assert got[0]["result"]["content"][0]["text"] == "late"


def test_term_fails_what_is_not_answered_in_time():
    with Bridge(server("never_answers"), "--grace", "0.2") as bridge:
        client = Client(bridge.port)
        client.initialize()
        got: list[dict] = []
        thread = threading.Thread(target=lambda: got.append(client.echo("never")))
        thread.start()
        eventually(lambda: bridge.health()["pending"] == 1)
        bridge.process.terminate()
        thread.join(10)
        assert "stopping" in got[0]["error"]["message"]


def test_a_call_over_its_time_limit_fails_and_the_server_is_told():
    with Bridge(server("never_answers"), "--call-timeout", "1") as bridge:
        client = Client(bridge.port)
        client.initialize()
        error = client.echo("never")["error"]
        assert error["code"] == -32001
        assert "within 1 s" in error["message"]
        assert client.ask("inbox")["result"]["methods"][-2:] == ["notifications/cancelled", "inbox"]


def test_the_idlest_session_makes_room_for_one_more():
    with Bridge(server("good_legacy"), "--max-sessions", "2") as bridge:
        clients = [Client(bridge.port) for _ in range(3)]
        for client in clients[:2]:
            client.initialize()
        clients[0].echo("used")
        clients[2].initialize()
        assert clients[1].send({"jsonrpc": "2.0", "id": 1, "method": "ping"})[0] == 404
        assert clients[0].echo("still")["result"]
        assert bridge.health()["counters"]["evicted"] == 1


def test_idle_sessions_end():
    with Bridge(server("good_legacy"), "--idle-timeout", "0.5") as bridge:
        Client(bridge.port).initialize()
        eventually(lambda: bridge.health()["sessions"] == 0)
        eventually(lambda: bridge.health()["children"] == 0)


def test_a_flood_on_stderr_and_its_environment_stay_out_of_the_log():
    secret = "s3cr3t-" + os.urandom(8).hex()
    with Bridge(server("leaks_env"), env={"FILES_SERVER_TOKEN": secret}) as bridge:
        Client(bridge.port).initialize()
        eventually(lambda: "FILES_SERVER_TOKEN=[FILES_SERVER_TOKEN]" in bridge.log())
        assert secret not in bridge.log()
    with Bridge(server("stderr_flood")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        assert client.echo("after the flood")["result"]["content"][0]["text"] == "after the flood"
    assert len(bridge.log()) < 200_000


def test_a_log_that_nobody_reads_holds_up_nothing():
    bridge = Bridge(server("stderr_flood"))
    try:
        os.kill(bridge.process.pid, signal.SIGCONT)
        bridge.stop_reading()
        client = Client(bridge.port)
        for _ in range(3):  # each session logs a burst; the pipe of the log is full after the first
            client.initialize()
            assert client.echo("x")["result"]["content"][0]["text"] == "x"
            client.delete()
            client.session = None
    finally:
        bridge.process.terminate()
        assert bridge.process.wait(20) == 0


def test_a_frozen_bridge_does_not_end_its_sessions():
    with Bridge(server("good_legacy"), "--idle-timeout", "4") as bridge:
        client = Client(bridge.port)
        client.initialize()
        worker = bridge.worker()
        os.kill(worker, signal.SIGSTOP)
        threading.Event().wait(6)  # the time itself is what is tested
        os.kill(worker, signal.SIGCONT)
        assert client.echo("awake")["result"]["content"][0]["text"] == "awake"


def test_a_second_get_stream_takes_over_and_notifications_reach_it():
    with Bridge(server("notifies")) as bridge:
        client = Client(bridge.port)
        client.initialize()
        old, new = client.open("GET"), client.open("GET")
        list(events(old))  # ends, since the newer stream took over
        assert client.echo("x")["result"]
        stream = events(new)
        got = [json.loads(next(d for _, d in stream if d))]
        assert got[0]["method"] == "notifications/tools/list_changed"
