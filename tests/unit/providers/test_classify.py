"""What the service's words mean, case by case."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac.providers.classify import Operation, Refusal, judge, kind, may_repeat, refusal, retry_after

OPERATIONS: tuple[Operation, ...] = ("get", "create", "command", "write")


@pytest.mark.parametrize(
    ("body", "headers", "code", "message", "request_id"),
    [
        (
            {"code": "a", "message": "m", "error": {"code": "b", "message": "n"}, "requestId": "r"},
            {},
            "a",
            "m",
            "r",
        ),
        ({"error": {"code": "b", "message": "n"}}, {"X-Request-Id": "h"}, "b", "n", "h"),
        ({"error": "flat", "message": "n"}, {}, "flat", "n", ""),
        ({"error": "flat"}, {}, "flat", "flat", ""),
        ([], {}, "http_500", "[]", ""),
        ({"code": 5, "error": 7}, {}, "http_500", "HTTP 500", ""),
    ],
)
def test_an_error_answer_is_read(
    body: object, headers: Mapping[str, str], code: str, message: str, request_id: str
) -> None:
    told = refusal(500, json.dumps(body).encode(), headers)
    assert (told.code, told.message, told.request_id) == (code, message, request_id)


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"\xff\xfe", b'{"error"'])
def test_an_answer_of_something_in_between_is_read_too(body: bytes) -> None:
    told = refusal(502, body, {})
    assert told.code == "http_502"
    assert told.message


@given(st.integers(100, 599), st.binary(max_size=200), st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
def test_nothing_that_a_service_says_breaks_us(status: int, body: bytes, headers: Mapping[str, str]) -> None:
    told = refusal(status, body, headers)
    for operation in OPERATIONS:
        assert judge(operation, told, "do it").kind == kind(operation, told)


@given(
    st.integers(100, 599),
    st.sampled_from(["x", "sandbox_starting", "sandbox_direct_failed", "idempotency_in_progress", "bad_answer"]),
    st.booleans(),
)
def test_what_may_have_happened_is_never_called_harmless(status: int, code: str, retryable: bool) -> None:
    """A command or a write that is not repeated after a server's fault is in doubt, whatever the code."""
    told = Refusal(status, code, "m", {"retryable": retryable})
    for operation in OPERATIONS:
        if kind(operation, told) == "in_doubt":
            assert operation != "get"
        if operation in ("command", "write") and may_repeat(operation, told):
            assert kind(operation, told) in ("transient", "throttled")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("5", 5.0),
        ("0.5", 0.5),
        ("600", 60.0),
        ("inf", 60.0),
        ("-1", 0.0),
        ("nan", None),
        ("soon", None),
        ("Mon, 30 Nov 2026 06:00:20 GMT", 20.0),
        ("Mon, 30 Nov 2026 05:00:00 GMT", 0.0),
        ("Mon, 30 Nov 2026 09:00:00 GMT", 60.0),
    ],
)
def test_a_wish_to_wait_is_read(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=lambda: 1_796_018_400.0) == seconds
