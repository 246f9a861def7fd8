"""The protocol core as written conversations: no process, no socket, no clock."""

from __future__ import annotations

import json

import pytest
from tests.bridge.play import META, MODERN, Stage, init_answer, init_text

from mcpiac.bridge import commands as do
from mcpiac.bridge.clock import ActiveClock


def call(rid: str = "1", token: str | None = None) -> str:
    meta = "" if token is None else ',"_meta":{"progressToken":' + token + "}"
    return '{"jsonrpc":"2.0","id":' + rid + ',"method":"tools/call","params":{"name":"t"' + meta + "}}"


def result(rid: str = "1", value: str = '"v"') -> str:
    return '{"jsonrpc":"2.0","id":' + rid + ',"result":' + value + "}"


def note(data: str = "x") -> str:
    return '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"' + data + '"}}'


def progress(token: str, step: int = 1) -> str:
    return (
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":' + token
        + ',"progress":' + str(step) + "}}"
    )  # fmt: skip


# sessions


def test_initialize_starts_a_child_and_its_answer_opens_the_session():
    stage = Stage()
    exchange = stage.post(init_text())
    assert stage.written(1) == [init_text()]
    stage.output(1, init_answer())
    answer = stage.respond(exchange)
    assert (answer.status, dict(answer.headers)["mcp-session-id"]) == (200, "s1")
    assert answer.body.decode() == init_answer()


def test_a_notification_before_the_answer_to_initialize_makes_a_stream_that_names_the_session():
    stage = Stage()
    exchange = stage.post(init_text())
    stage.output(1, note())
    stage.output(1, init_answer())
    begin = next(c for c in stage.log if isinstance(c, do.Begin))
    assert dict(begin.headers)["mcp-session-id"] == "s1"
    assert stage.texts(exchange) == [note(), init_answer()]
    assert stage.has(do.Finish, exchange=exchange)


def test_a_refused_initialize_is_delivered_and_ends_the_child():
    stage = Stage()
    exchange = stage.post(init_text())
    error = '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no key"}}'
    stage.output(1, error)
    assert "server/discover" in stage.written(1)[-1]
    stage.output(1, '{"jsonrpc":"2.0","id":"mcpiac-bridge-discover","error":{"code":-32601,"message":"?"}}')
    answer = stage.respond(exchange)
    assert answer.body.decode() == error
    assert "mcp-session-id" not in dict(answer.headers)
    assert stage.has(do.End, child=1)
    assert stage.hub.front.sessions == {}


def test_a_child_that_ends_fails_every_call_then_the_session_is_unknown():
    stage = Stage()
    sid, child = stage.session()
    first, second = stage.post(call("1"), sid), stage.post(call("2"), sid)
    stage.ended(child, "exit 3", "out of memory")
    for exchange in (first, second):
        error = json.loads(stage.texts(exchange)[0])["error"]
        assert error["data"] == {"status": "exit 3", "stderr": ["out of memory"]}
    assert stage.respond(stage.post(call("3"), sid)).status == 404


def test_a_complete_last_line_without_a_newline_still_answers():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call(), sid)
    stage.play(stage.hub.output(child, result().encode(), stage.now))
    stage.ended(child, "exit 0")
    assert stage.texts(exchange) == [result()]


def test_an_id_still_in_use_is_refused():
    stage = Stage()
    sid, _ = stage.session()
    stage.post(call("1"), sid)
    again = stage.post(call("1.0"), sid)
    assert stage.respond(again).status == 400
    assert "still waiting" in stage.texts(again)[0]


def test_idle_sessions_end_and_a_get_stream_keeps_one():
    stage = Stage(idle=10.0)
    kept, _ = stage.session()
    dropped, _ = stage.session()
    stage.get(kept)
    stage.pass_time(11)
    assert list(stage.hub.front.sessions) == [kept]
    assert stage.respond(stage.post(call(), dropped)).status == 404


def test_the_idlest_makes_room_and_busy_sessions_are_never_ended():
    stage = Stage(sessions=2)
    first, _ = stage.session()
    stage.pass_time(1)
    second, _ = stage.session()
    stage.post(call(), second)
    third, _ = stage.session()
    assert set(stage.hub.front.sessions) == {second, third}
    assert first not in stage.hub.front.sessions
    stage.post(call(), third)
    refused = stage.respond(stage.post(init_text()))
    assert refused.status == 503
    assert dict(refused.headers)["retry-after"]


def test_the_clock_stands_still_while_the_bridge_is_frozen():
    real = [100.0]
    clock = ActiveClock(lambda: real[0], longest=3.0)
    real[0] = 101.0
    assert clock.now() == 1.0
    real[0] = 90_000.0
    assert clock.now() == 4.0
    real[0] = 89_000.0  # even backwards
    assert clock.now() == 4.0


# ids and repairs


@pytest.mark.parametrize("raw", ['"1"', "1.0", "1e0"])
def test_an_id_that_comes_back_otherwise_is_repaired(raw):
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call("1"), sid)
    stage.output(child, result(raw))
    assert stage.texts(exchange) == [result("1")]


def test_an_id_as_text_is_not_repaired_where_a_pending_id_equals_it():
    stage = Stage()
    sid, child = stage.session()
    number, text = stage.post(call("1"), sid), stage.post(call('"1"'), sid)
    stage.output(child, result('"1"', '"for the text"'))
    assert stage.texts(text) == [result('"1"', '"for the text"')]
    assert stage.texts(number) == []


def test_an_error_without_an_id_answers_the_only_call():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call("7"), sid)
    stage.output(child, '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}')
    assert stage.texts(exchange) == ['{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}']


def test_an_error_without_an_id_with_two_calls_answers_neither():
    stage = Stage()
    sid, child = stage.session()
    one, two = stage.post(call("1"), sid), stage.post(call("2"), sid)
    stage.output(child, '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}')
    assert stage.texts(one) == stage.texts(two) == []
    assert stage.hub.core.counters.strays == 1


def test_an_error_that_may_answer_a_notification_waits_for_the_calls_own_answer():
    error = '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"what?"}}'
    stage = Stage()
    sid, child = stage.session()
    stage.post('{"jsonrpc":"2.0","method":"notifications/initialized"}', sid)
    exchange = stage.post(call("1"), sid)
    stage.output(child, error, result("1"))
    assert stage.texts(exchange) == [result("1")]
    stage.post('{"jsonrpc":"2.0","method":"notifications/odd"}', sid)
    other = stage.post(call("2"), sid)
    stage.output(child, error)
    assert stage.texts(other) == []
    stage.pass_time(2)
    assert stage.texts(other) == ['{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"what?"}}']


def test_old_library_answers_lose_only_the_member_that_is_null():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call("1"), sid)
    stage.output(child, '{"id":1,"result":{"n":1.50},"error":null}')
    assert stage.texts(exchange) == ['{"jsonrpc":"2.0","id":1,"result":{"n":1.50}}']


def test_a_broken_answer_fails_its_call_and_not_another():
    stage = Stage()
    sid, child = stage.session()
    one, two = stage.post(call("1"), sid), stage.post(call("2"), sid)
    stage.output(child, '{"jsonrpc":"2.0","id":2,"result":{"n":NaN}}')
    assert "broken" in stage.texts(two)[0]
    stage.output(child, result("1"))
    assert stage.texts(one) == [result("1")]


# streams


def test_progress_goes_to_its_own_call():
    stage = Stage()
    sid, child = stage.session()
    one, two = stage.post(call("1", '"a"'), sid), stage.post(call("2", '"b"'), sid)
    stage.output(child, progress('"a"'), progress('"b"'), progress('"a"', 2), result("1"), result("2"))
    assert stage.texts(one) == [progress('"a"'), progress('"a"', 2), result("1")]
    assert stage.texts(two) == [progress('"b"'), result("2")]


def test_a_silent_call_becomes_a_stream_with_comments():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call(), sid)
    stage.pass_time(31)
    comments = [c for c in stage.log if isinstance(c, do.Data) and c.data == b": keep-alive\n\n"]
    assert len(comments) == 2
    stage.output(child, result())
    assert stage.texts(exchange) == [result()]


def test_a_client_that_takes_only_json_gets_json_and_the_rest_goes_to_the_get_stream():
    stage = Stage()
    sid, child = stage.session()
    get = stage.get(sid)
    exchange = stage.post(call(), sid, accept="application/json")
    stage.output(child, note("side"), result())
    assert stage.respond(exchange).body.decode() == result()
    assert stage.texts(get) == [note("side")]


def test_what_comes_while_no_client_listens_waits_for_the_get_stream():
    stage = Stage()
    sid, child = stage.session()
    stage.output(child, note("early"))
    get = stage.get(sid)
    assert stage.texts(get) == [note("early")]


def test_a_large_answer_close_behind_a_notification_goes_as_json():
    stage = Stage()
    sid, child = stage.session()
    get = stage.get(sid)
    exchange = stage.post(call(), sid)
    large = result("1", '"' + "x" * (2 << 20) + '"')
    stage.output(child, note("first"), large)
    assert stage.respond(exchange).body.decode() == large
    assert stage.texts(get) == [note("first")]


def test_resuming_replays_what_was_not_seen_and_goes_on():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call("1", "1"), sid)
    stage.output(child, progress("1", 1), progress("1", 2))
    priming, first, _ = stage.event_ids(exchange)
    stage.play(stage.hub.gone(exchange, stage.now))
    stage.output(child, progress("1", 3))
    again = stage.get(sid, first)
    stage.output(child, result("1"))
    assert stage.texts(again) == [progress("1", 2), progress("1", 3), result("1")]
    assert stage.has(do.Finish, exchange=again)
    whole = stage.get(sid, priming)  # after the end too
    assert stage.texts(whole) == [progress("1", 1), progress("1", 2), progress("1", 3), result("1")]


def test_an_older_client_gets_no_empty_event():
    stage = Stage()
    sid, child = stage.session("2025-06-18")
    exchange = stage.post(call("1", "1"), sid)
    stage.output(child, progress("1"), result())
    data = b"".join(c.data for c in stage.log if isinstance(c, do.Data) and c.exchange == exchange)
    assert b"data:\n" not in data
    assert stage.texts(exchange) == [progress("1"), result()]


def test_a_slow_client_loses_notifications_and_never_answers():
    stage = Stage(queue=3)
    sid, child = stage.session()
    exchange = stage.post(call("1", "1"), sid)
    stage.output(child, progress("1", 0))
    stage.play(stage.hub.blocked(exchange, True, stage.now))
    stage.output(child, *[progress("1", n) for n in range(1, 10)], result())
    assert stage.hub.core.counters.dropped == 6
    stage.play(stage.hub.blocked(exchange, False, stage.now))
    assert stage.texts(exchange) == [*[progress("1", n) for n in range(4)], result()]
    assert stage.has(do.Finish, exchange=exchange)


def test_too_much_for_slow_clients_leaves_the_child_unread_for_a_while():
    stage = Stage(hold_bytes=10_000)
    sid, child = stage.session()
    exchange = stage.post(call("1", "1"), sid)
    stage.output(child, progress("1", 0))
    stage.play(stage.hub.blocked(exchange, True, stage.now))
    stage.output(child, *['{"jsonrpc":"2.0","id":"q","method":"x","params":{"d":"' + "x" * 6000 + '"}}'] * 2)
    assert stage.has(do.Reading, child=child, on=False)
    stage.play(stage.hub.blocked(exchange, False, stage.now))
    assert stage.has(do.Reading, child=child, on=True)


def test_a_client_that_never_reads_is_disconnected():
    stage = Stage(client=5.0)
    sid, child = stage.session()
    exchange = stage.post(call("1", "1"), sid)
    stage.output(child, progress("1"))
    stage.play(stage.hub.blocked(exchange, True, stage.now))
    stage.pass_time(6)
    assert stage.has(do.Abort, exchange=exchange)


def test_a_cancelled_call_is_closed_even_if_the_server_says_nothing():
    stage = Stage(cancel=2.0)
    sid, child = stage.session()
    exchange = stage.post(call("5"), sid)
    cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}'
    stage.post(cancel, sid)
    assert stage.written(child)[-1] == cancel
    stage.pass_time(3)
    assert "cancelled" in stage.texts(exchange)[0]


def test_a_call_over_its_limit_fails_and_progress_moves_the_limit():
    stage = Stage(call=10.0)
    sid, child = stage.session()
    exchange = stage.post(call("1", "1"), sid)
    stage.pass_time(8)
    stage.output(child, progress("1"))
    stage.pass_time(8)
    assert len(stage.texts(exchange)) == 1
    stage.pass_time(3)
    assert json.loads(stage.texts(exchange)[-1])["error"]["code"] == -32001
    assert '"requestId":1' in stage.written(child)[-1]


def test_a_batch_of_2025_03_26_is_answered_whole():
    stage = Stage()
    sid, child = stage.session("2025-03-26")
    batch = "[" + call("1") + "," + '{"jsonrpc":"2.0","method":"notifications/odd"}' + "," + call("2") + "]"
    exchange = stage.post(batch, sid)
    assert stage.written(child)[1:] == ['{"jsonrpc":"2.0","method":"notifications/odd"}', call("1"), call("2")]
    stage.output(child, result("2"), result("1"))
    assert stage.texts(exchange) == [result("2"), result("1")]
    newer, _ = stage.session()
    assert stage.respond(stage.post(batch, newer)).status == 400


# the stateless era


def discovered(stage: Stage, rid: str = '"mcpiac-bridge-probe"') -> str:
    value = '{"supportedVersions":["' + MODERN + '"],"capabilities":{},"resultType":"complete"}'
    return result(rid, value)


def test_one_child_serves_all_clients_and_equal_ids_never_meet():
    stage = Stage()
    one = stage.modern("tools/list", '"same"')
    stage.output(1, discovered(stage))
    two = stage.modern("tools/list", '"same"')
    wires = [json.loads(t)["id"] for t in stage.written(1)[1:]]
    assert wires == [1, 2]
    stage.output(1, result("2", '"two"'), result("1", '"one"'))
    assert stage.texts(one) == [result('"same"', '"one"')]
    assert stage.texts(two) == [result('"same"', '"two"')]
    assert stage.spawned() == 1


def test_progress_tokens_are_given_back():
    stage = Stage()
    one = stage.modern("tools/call", "1", '"name":"t",', ',"progressToken":1', mcp_name="t")
    stage.output(1, discovered(stage))
    two = stage.modern("tools/call", "1", '"name":"t",', ',"progressToken":1', mcp_name="t")
    tokens = [json.loads(t)["params"]["_meta"]["progressToken"] for t in stage.written(1)[1:]]
    assert tokens == [1, 2]
    stage.output(1, progress("2"), result("2"), progress("1"), result("1"))
    assert stage.texts(one) == stage.texts(two) == [progress("1"), result("1")]


def test_closing_the_stream_cancels_the_request():
    stage = Stage()
    exchange = stage.modern("tools/list", '"x"')
    stage.output(1, discovered(stage))
    stage.play(stage.hub.gone(exchange, stage.now))
    cancel = json.loads(stage.written(1)[-1])
    assert (cancel["method"], cancel["params"]["requestId"]) == ("notifications/cancelled", 1)


def test_a_request_for_logs_has_a_child_to_itself():
    stage = Stage()
    plain = stage.modern("tools/list", "1")
    stage.output(1, discovered(stage))
    logs = stage.modern("tools/call", "1", '"name":"t",', f',"{META}logLevel":"info"', mcp_name="t")
    assert stage.spawned() == 2
    stage.output(2, note("mine"), result("1"))
    stage.output(1, note("whose?"), result("1"))
    assert stage.texts(logs) == [note("mine"), result("1")]
    assert stage.texts(plain) == [result("1")]
    stage.modern("tools/call", "2", '"name":"t",', f',"{META}logLevel":"info"', mcp_name="t")
    assert stage.spawned() == 2  # free again


def test_subscription_ids_are_given_back():
    stage = Stage()
    exchange = stage.modern("subscriptions/listen", '"mine"')
    stage.output(1, discovered(stage))
    changed = (
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"%ssubscriptionId":%s}}}'
    )
    stage.output(1, changed % (META, "1"))
    assert stage.texts(exchange) == [changed % (META, '"mine"')]


def test_an_older_server_is_remembered_and_its_probed_child_used():
    stage = Stage()
    exchange = stage.modern("server/discover", "1")
    stage.output(1, '{"jsonrpc":"2.0","id":"mcpiac-bridge-probe","error":{"code":-32601,"message":"?"}}')
    answer = stage.respond(exchange)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == -32022
    stage.post(init_text())
    assert stage.spawned() == 1
    assert stage.written(1)[-1] == init_text()
    stage.modern("server/discover", "2")
    assert stage.spawned() == 1  # not asked again


def test_a_second_hand_child_that_refuses_initialize_is_replaced_once():
    stage = Stage()
    stage.modern("server/discover", "1")
    stage.output(1, '{"jsonrpc":"2.0","id":"mcpiac-bridge-probe","error":{"code":-32601,"message":"?"}}')
    exchange = stage.post(init_text())
    stage.output(1, '{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"spoilt"}}')
    assert stage.has(do.End, child=1)
    assert stage.written(2) == [init_text()]
    stage.output(2, init_answer())
    assert stage.texts(exchange) == [init_answer()]


def test_a_child_that_is_silent_on_the_probe_is_handed_to_the_client_that_falls_back():
    stage = Stage(probe=20.0)
    first = stage.modern("server/discover", "1")
    stage.pass_time(10)
    stage.play(stage.hub.gone(first, stage.now))
    exchange = stage.post(init_text())
    assert stage.spawned() == 1
    stage.output(1, init_answer())
    assert stage.texts(exchange) == [init_answer()]


def test_a_modern_only_server_behind_an_older_client():
    stage = Stage()
    exchange = stage.post(init_text("i"))
    stage.output(1, '{"jsonrpc":"2.0","id":"i","error":{"code":-32022,"message":"modern only"}}')
    stage.output(1, discovered(stage, '"mcpiac-bridge-discover"'))
    opened = json.loads(stage.texts(exchange)[0])
    assert opened["id"] == "i"
    assert opened["result"]["protocolVersion"] == "2025-11-25"
    stage.post('{"jsonrpc":"2.0","method":"notifications/initialized"}', "s1")
    before = len(stage.written(1))
    stage.post('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n":1.50}}', "s1")
    stage.post('{"jsonrpc":"2.0","id":2,"method":"tools/list"}', "s1")
    stage.post('{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{}}}', "s1")
    sent = stage.written(1)[before:]
    assert '"n":1.50' in sent[0]
    for text in sent:
        assert json.loads(text)["params"]["_meta"][META + "protocolVersion"] == MODERN
    assert json.loads(stage.texts(stage.post('{"jsonrpc":"2.0","id":4,"method":"ping"}', "s1"))[0])["result"] == {}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"mcp_method": "tools/list"}, 400, -32020),
        ({"mcp_name": "other"}, 400, -32020),
        ({"mcp_protocol_version": "2099-01-01"}, 400, -32020),
        ({"mcp_name": "=?base64?dA==?="}, 200, None),
        ({"mcp_name": "=?base64?dA=?="}, 400, -32020),
    ],
)
def test_headers_must_match_the_body(change, status, code):
    stage = Stage()
    exchange = stage.modern("tools/call", "1", '"name":"t",', **{"mcp_name": "t", **change})
    stage.output(1, discovered(stage))
    stage.output(1, result("1"))
    answer = stage.respond(exchange)
    assert (answer.status, json.loads(answer.body).get("error", {}).get("code")) == (status, code)


# health and the end


def test_health_tells_whether_the_child_can_start():
    from mcpiac.bridge.gate import head_of

    stage = Stage()
    head = head_of("GET", "/healthz?start=1", {"host": "localhost"}.items())
    stage.play(stage.hub.request(90, head, b"", 0.0))
    stage.ended(1, "cannot start x: No such file or directory")
    answer = stage.respond(90)
    assert answer.status == 503
    assert json.loads(answer.body)["server"]["failure"]["status"].startswith("cannot start")
    stage.play(stage.hub.request(91, head, b"", 0.0))
    stage.output(2, '{"jsonrpc":"2.0","id":"mcpiac-bridge-probe","error":{"code":-32601,"message":"?"}}')
    assert stage.respond(91).status == 200


def test_term_waits_for_what_is_pending_then_quits():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call(), sid)
    stage.play(stage.hub.stop(stage.now))
    assert stage.respond(stage.post(init_text())).status == 503
    assert not stage.has(do.Quit)
    stage.output(child, result())
    assert stage.texts(exchange) == [result()]
    assert stage.has(do.End, child=child)
    assert stage.log[-1] == do.Quit()


def test_term_fails_what_is_too_late_and_a_second_one_waits_for_nothing():
    stage = Stage(grace=3.0)
    sid, _ = stage.session()
    exchange = stage.post(call(), sid)
    stage.play(stage.hub.stop(stage.now))
    stage.pass_time(4)
    assert "stopping" in stage.texts(exchange)[0]
    assert stage.has(do.Quit)
    other = Stage()
    sid, _ = other.session()
    other.post(call(), sid)
    other.play(other.hub.stop(0.0))
    other.play(other.hub.stop(0.0))
    assert other.has(do.Quit)


def test_notifications_wait_while_the_line_behind_them_is_still_coming():
    stage = Stage()
    sid, child = stage.session()
    exchange = stage.post(call(), sid)
    large = result("1", '"' + "x" * (2 << 20) + '"').encode()
    stage.quiet = True
    stage.play(stage.hub.output(child, note("first").encode() + b"\n" + large[:100], stage.now))
    again = stage.hub.wake(stage.now)
    assert [type(c) for c in again] == [do.Wake]
    stage.play(stage.hub.output(child, large[100:] + b"\n", stage.now))
    assert stage.respond(exchange).body == large
