"""Properties of the core over random streams, interleavings and rubbish; failures print how to repeat."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.bridge.play import Stage, init_answer, init_text

from mcpiac.bridge import commands as do
from mcpiac.bridge.jsonscan import Message, NotJSON, id_key, parse
from mcpiac.bridge.lines import MessageReader

FAST = settings(max_examples=40, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
ids = st.integers() | st.text(max_size=12)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": ids,
        "method": st.sampled_from(["tools/call", "notifications/progress", "x/odd"]),
        "params": st.dictionaries(st.text(max_size=8), values, max_size=4),
        "result": values,
        "error": values,
        "x-more": values,
    },
).map(lambda m: json.dumps(m, ensure_ascii=len(str(m)) % 2 == 0))
calls = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": ids, "method": st.just("tools/call")},
    optional={"params": st.dictionaries(st.text(max_size=8), values, max_size=4), "x-more": values},
).map(lambda m: json.dumps(m, ensure_ascii=len(str(m)) % 2 == 0))
noise = st.sampled_from(["", "banner", "[info] {x", "{", "}", '{"level":"info"}', "\x1b[1m", "{}", "[]", "\ufeff"])
lines = st.lists(messages | noise, max_size=12)


def shown(items: list[Any]) -> list[Any]:
    return [item.whole if isinstance(item, Message) else tuple(item) for item in items]


@FAST
@given(lines, st.sampled_from(["\n", "\r\n"]), st.randoms(use_true_random=False))
def test_any_split_of_the_bytes_gives_the_same_messages(parts, ending, chance):
    data = "".join(part + ending for part in parts).encode("utf-8", "surrogatepass")
    whole = MessageReader(1 << 20)
    expected = shown(whole.feed(data) + whole.end())
    split = MessageReader(1 << 20)
    items, at = [], 0
    while at < len(data):
        step = chance.choice([1, 1, 2, 3, 7, 50])
        items += split.feed(data[at : at + step])
        at += step
    assert shown(items + split.end()) == expected


@FAST
@given(st.lists(calls, max_size=6), noise)
def test_every_message_is_found_whatever_stands_between(wanted, between):
    reader = MessageReader(1 << 20)
    data = "".join(between + "\n" + text + "\n" for text in wanted).encode("utf-8", "surrogatepass")
    found = [item.whole for item in reader.feed(data) + reader.end() if isinstance(item, Message)]
    assert found == [text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in wanted]


@FAST
@given(messages, ids)
def test_only_the_characters_of_the_id_are_replaced(text, new):
    message = Message(text)
    assert message.whole == text
    loaded = json.loads(text)
    for part, span in message.spans.items():
        assert json.loads(text[span[0] : span[1]]) == loaded[part]
    if "id" in message.spans:
        raw = json.dumps(new)
        start, end = message.spans["id"]
        assert message.replaced([((start, end), raw)]) == text[:start] + raw + text[end:]
        assert message.key == id_key(json.dumps(loaded["id"]))


@FAST
@given(st.text(max_size=60) | st.lists(st.sampled_from('{}[]":,\\ 0e-+."a\n'), max_size=40).map("".join))
def test_what_is_not_json_is_refused_and_what_is_agrees_with_json(text):
    try:
        parse(text)
    except NotJSON:
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            return
        odd = not isinstance(loaded, (dict, list)) or (
            isinstance(loaded, list) and not all(isinstance(x, dict) for x in loaded)
        )
        assert odd or "NaN" in text or "Infinity" in text
    else:
        json.loads(text)


@settings(FAST, max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(2, 6))
def test_any_interleaving_of_sessions_gives_each_client_its_own_answers(chance, clients):
    stage = Stage()
    sessions = [stage.session() for _ in range(clients)]
    expected: dict[int, str] = {}
    waiting: list[tuple[int, str]] = []
    for turn in range(30):
        if waiting and chance.random() < 0.5:
            child, text = waiting.pop(chance.randrange(len(waiting)))
            stage.output(child, text)
        else:
            number = chance.randrange(clients)
            sid, child = sessions[number]
            rid = str(turn)
            exchange = stage.post('{"jsonrpc":"2.0","id":' + rid + ',"method":"m"}', sid)
            answer = '{"jsonrpc":"2.0","id":' + rid + f',"result":"{number}/{turn}"' + "}"
            waiting.append((child, answer))
            expected[exchange] = answer
    for child, text in waiting:
        stage.output(child, text)
    assert {exchange: stage.texts(exchange) for exchange in expected} == {e: [t] for e, t in expected.items()}


@settings(FAST, max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(2, 6))
def test_any_interleaving_on_a_shared_child_gives_each_client_its_own_answers(chance, clients):
    stage = Stage()
    first = stage.modern("tools/list", "0")
    found = '{"jsonrpc":"2.0","id":"mcpiac-bridge-probe","result":{"supportedVersions":["2026-07-28"]}}'
    stage.output(1, found)
    expected = {first: []}
    waiting: list[tuple[int, int, str]] = []
    for turn in range(30):
        if waiting and chance.random() < 0.5:
            exchange, wire, raw = waiting.pop(chance.randrange(len(waiting)))
            note = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'
            if chance.random() < 0.5:
                stage.output(1, note + str(wire) + "}}")
                expected[exchange].append(note + raw + "}}")
            stage.output(1, '{"jsonrpc":"2.0","id":' + str(wire) + f',"result":"{exchange}"' + "}")
            expected[exchange].append('{"jsonrpc":"2.0","id":' + raw + f',"result":"{exchange}"' + "}")
        else:
            raw = chance.choice(["1", '"1"', "1.0", str(turn % clients)])
            exchange = stage.modern("x/odd", raw, "", ',"progressToken":' + raw)
            wire = json.loads(stage.written(1)[-1])["id"]
            waiting.append((exchange, wire, raw))
            expected[exchange] = []
    assert {exchange: stage.texts(exchange) for exchange in expected} == expected


@settings(FAST, max_examples=30)
@given(st.randoms(use_true_random=False), st.lists(st.binary(max_size=80), max_size=12), lines)
def test_rubbish_on_both_sides_neither_crashes_the_core_nor_leaves_a_request_unanswered(chance, rubbish, texts):
    stage = Stage(call=5.0, start=5.0, probe=5.0)
    asked: list[int] = []
    sid, _ = stage.session()
    for _ in range(25):
        choice = chance.randrange(7)
        living = [c.child for c in stage.log if isinstance(c, do.Spawn)]
        if choice == 0:
            asked.append(stage.post(init_text(chance.choice([1, "a", 2.5]))))
        elif choice == 1:
            body = chance.choice([*texts, "[]", "", "{", '{"jsonrpc":"2.0","id":1,"method":"m"}'])
            data = body.encode("utf-8", "replace").decode()
            asked.append(stage.post(data, chance.choice([sid, None, "other"])))
        elif choice == 2:
            asked.append(stage.modern(chance.choice(["server/discover", "tools/list", "x"])))
        elif choice == 3 and rubbish:
            stage.play(stage.hub.output(chance.choice(living), chance.choice(rubbish), stage.now))
        elif choice == 4 and texts:
            text = chance.choice(texts).encode("utf-8", "replace") + b"\n"
            stage.play(stage.hub.output(chance.choice(living), text, stage.now))
        elif choice == 5:
            stage.output(chance.choice(living), init_answer(chance.choice(["0", "1", '"a"'])))
        else:
            stage.pass_time(chance.choice([1, 3, 7]))
    for command in list(stage.log):
        if isinstance(command, do.Spawn):
            stage.ended(command.child, "exit 0")
    stage.play(stage.hub.stop(stage.now))
    stage.play(stage.hub.stop(stage.now))
    for exchange in asked:
        done = [c for c in stage.log if isinstance(c, (do.Respond, do.Finish)) and c.exchange == exchange]
        assert len(done) == 1, (exchange, done)
    assert stage.has(do.Quit)


def test_the_scanner_takes_a_long_message_without_keeping_it():
    text = '{"jsonrpc":"2.0","id":1,"result":[' + ",".join(['{"a":[1,2,3]}'] * 200_000) + "]}"
    message = Message(text)
    assert (message.kind, message.raw_id, message.whole == text) == ("answer", "1", True)
