"""No secret in any text, in whatever form a program prints it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac.executor.redact import MASK, Redactor
from mcpiac.model.secret import Secret

VALUE = 'p&ss "wörd"/+\\=?'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    ],
)
def test_each_form_is_taken_out(form: str) -> None:
    text = Redactor([Secret(VALUE)]).text(f"before {form} after")
    assert MASK in text
    assert "wörd" not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


@given(secret=st.text(min_size=9, max_size=40), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_base64_of_a_longer_text_does_not_hold_it(secret: str, before: bytes, after: bytes) -> None:
    raw = secret.encode("utf-8", "surrogatepass")
    encoded = base64.b64encode(before + raw + after).decode()
    shown = Redactor([Secret(secret)]).text(encoded)
    assert MASK in shown
    assert len(shown.replace(MASK, "")) <= len(encoded) - 4 * (len(raw) // 3 - 1)


def test_each_long_line_of_a_key_is_taken_out() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    text = Redactor([Secret(key)]).text("error near `hkiG9w0BAQEFAASC`")
    assert "hkiG" not in text


def test_a_token_learned_later_is_taken_out_too() -> None:
    one = Redactor()
    assert one.text("token-1234") == "token-1234"
    one.learn(Secret("token-1234"))
    one.learn(None)
    assert one.text("x=token-1234") == f"x={MASK}"


def test_very_short_values_do_not_spoil_texts() -> None:
    assert Redactor([Secret(""), Secret("1"), Secret("abc")]).text("1 abc") == "1 abc"
