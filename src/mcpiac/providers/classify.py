"""How the service said no, as an error kind, and which requests may be sent again: two tables in one place.

Rules and codes are those of the service's published SDK (``sandboxer-sdk`` 0.1.1: ``errors.py``, ``_retry.py``).
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpiac.model.outcome import ErrorKind, ProviderError
from mcpiac.providers.redact import redact
from mcpiac.wire import HEADER_REQUEST_ID

Operation = Literal["get", "create", "command", "write"]
"""``get``: reads. ``create``: carries an Idempotency-Key. ``command``: starts a program. ``write``: the rest."""

RETRY_AFTER_MAX = 60.0
"""Seconds: a longer wish of the service is honoured up to here."""

NO_ANSWER = "no_answer"
"""Our code: the connection failed or timed out after the request may have been sent."""
NOT_SENT = "not_sent"
"""Our code: there was no connection, so nothing was sent."""
BAD_ANSWER = "bad_answer"
"""Our code: a success whose body cannot be read."""

_NOTHING_HAPPENED = frozenset({"sandbox_starting", "no_ready_machine", "gateway_error"})
"""Refusals after which the same call is free to be repeated. ``gateway_error``: a rename that is saved; repeat it."""

_BY_STATUS: Mapping[int, ErrorKind] = {
    401: "unauthorised",
    402: "rejected",
    403: "unauthorised",
    404: "not_found",
    409: "conflict",
    410: "not_found",
    429: "throttled",
    501: "rejected",
}
_BY_CODE: Mapping[str, ErrorKind] = {
    "machine_class_plan_required": "rejected",
    "idempotency_in_progress": "transient",
}

_HINTS: Mapping[str, str] = {
    "unauthorised": "check SANDBOXER_API_KEY (and SANDBOXER_ORG)",
    "machine_class_plan_required": "choose a smaller `size`, or a larger plan of the service",
    "billing_required": "the service asks for billing to be set up first",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that did not end well, before it is judged. ``status`` 0: no answer."""

    status: int
    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    request_id: str = ""
    retry_after: float | None = None


def refusal(status: int, body: bytes, headers: Mapping[str, str], now: Callable[[], float] = time.time) -> Refusal:
    """What an error answer says: the envelope, or the flat ``{"error": code, "message": …}`` of some endpoints."""
    try:
        whole = json.loads(body)
    except ValueError:
        whole = None
    code, message, details = f"http_{status}", "", {}
    request_id = headers.get(HEADER_REQUEST_ID, "")
    if isinstance(whole, dict):
        inner = whole.get("error")
        nested = inner if isinstance(inner, dict) else {}
        flat = inner if isinstance(inner, str) else None
        code = _first_text(whole.get("code"), nested.get("code"), flat) or code
        message = _first_text(whole.get("message"), nested.get("message"), flat)
        found = nested.get("details") or whole.get("details")
        details = found if isinstance(found, dict) else {}
        request_id = _first_text(whole.get("requestId")) or request_id
    elif body.strip():
        message = body[:300].decode("utf-8", "replace").strip()
    after = retry_after(headers.get("Retry-After"), now)
    return Refusal(status, code, message or f"HTTP {status}", details, request_id, after)


def _first_text(*values: Any) -> str:
    return next((v for v in values if isinstance(v, str) and v), "")


def retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Seconds of a ``Retry-After`` header, a number or an HTTP date, at most ``RETRY_AFTER_MAX``."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now()
        except ValueError:
            return None
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX)


def may_repeat(operation: Operation, refused: Refusal) -> bool:
    """Whether the same request may be sent again without knowing more."""
    if refused.status == 429:
        return True
    if refused.code == "sandbox_starting":
        return operation != "create"
    if refused.code == "idempotency_in_progress":
        return operation == "create"
    if refused.code == "sandbox_direct_failed":
        if refused.details.get("retryable") is not True:
            return False
        return operation in ("get", "write") or (operation == "command" and _said(refused) == "sandbox_restoring")
    if refused.status == 501:
        return False
    if refused.status == 0 or refused.status >= 500 or refused.code == BAD_ANSWER:
        return operation in ("get", "create")
    return False


def _said(refused: Refusal) -> str:
    return _first_text(refused.details.get("message")) or refused.message


def kind(operation: Operation, refused: Refusal) -> ErrorKind:
    """The error kind of a call that is not sent again (any more)."""
    if refused.code in _BY_CODE:
        return _BY_CODE[refused.code]
    if refused.code in _NOTHING_HAPPENED or refused.code == NOT_SENT:
        return "transient"
    if refused.code == "sandbox_direct_failed":
        if may_repeat(operation, refused):
            return "transient"
        return "in_doubt" if operation != "get" else "conflict"
    if refused.status in _BY_STATUS:
        return _BY_STATUS[refused.status]
    if refused.status == 0 or refused.status >= 500 or refused.code == BAD_ANSWER:
        return "transient" if operation == "get" else "in_doubt"
    return "rejected"


def judge(operation: Operation, refused: Refusal, what: str, secrets: tuple[str, ...] = ()) -> ProviderError:
    """The error that the executor decides by. ``what`` says what was asked; no credential is left in the text."""
    found = kind(operation, refused)
    return ProviderError(
        found,
        f"{what}: {redact(refused.message, secrets)}",
        code=redact(refused.code, secrets),
        status=refused.status,
        request_id=redact(refused.request_id, secrets)[:200],
        retry_after=refused.retry_after,
        hint=_HINTS.get(refused.code) or _HINTS.get(found, ""),
    )
