"""One child's side of the conversation: which call waits for which answer.

Ids pass unchanged on a channel that belongs to one session. On a shared channel every call goes out
under a number of the bridge's own, and the client's id and progress token are put back in the
answers: two clients with the same ids never meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Union

from .gate import META
from .jsonscan import IdKey, Message, NotJSON, Span, id_key
from .lines import MessageReader, Noise
from .stream import Stream

_DOUBT = 1.0  # seconds
SUBSCRIPTION = META + "subscriptionId"


class Call:
    """A request that waits for its answer."""

    __slots__ = ("cancelled_at", "deadline", "key", "method", "purpose", "raw_id", "raw_token", "stream", "token")

    def __init__(self, raw_id: str, method: str, stream: Stream | None, purpose: str = "") -> None:
        self.raw_id = raw_id  # as the client wrote it
        self.key: IdKey = 0  # under which the child answers
        self.method = method
        self.stream = stream  # None: the bridge's own call, or its client is gone
        self.purpose = purpose  # "": a client's; else why the bridge asked
        self.raw_token: str | None = None  # the client's progress token
        self.token: IdKey | None = None  # under which the child reports progress
        self.deadline: float | None = None
        self.cancelled_at: float | None = None


class Answer(NamedTuple):
    call: Call
    text: str
    is_error: bool
    message: Message


class Note(NamedTuple):
    """A notification; `call` where it belongs to one."""

    text: str
    method: str
    call: Call | None


class Ask(NamedTuple):
    """A request of the server's."""

    text: str
    message: Message


class Broken(NamedTuple):
    """Something that answers `call` but is no message."""

    call: Call
    why: str


class Stray(NamedTuple):
    """An answer that nobody waits for."""

    text: str


Event = Union[Answer, Note, Ask, Broken, Stray, Noise]  # noqa: UP007 - evaluated, and 3.9 has no |


class Channel:
    def __init__(self, child: int, line_limit: int, shared: bool, now: float) -> None:
        self.child = child
        self.shared = shared
        self.reader = MessageReader(line_limit)
        self.calls: dict[IdKey, Call] = {}
        self.tokens: dict[IdKey, Call] = {}
        self.born = now
        self.last_used = now
        self.heard = False  # a message came from the child
        self.full = False  # the child does not read its stdin
        self.read_paused = False
        self.repaired = 0
        self.unanswerable = False  # a notification went out after the last answer came
        self._doubtful: tuple[Call, Message, float] | None = None
        self._next = 0

    def repairs(self) -> int:
        """How much has been repaired since this was last asked."""
        count = self.repaired + self.reader.repaired
        self.repaired = self.reader.repaired = 0
        return count

    # towards the child

    def taken(self, key: IdKey) -> bool:
        return key in self.calls

    def send(self, call: Call, message: Message, limit: float, now: float) -> str:
        """Registers the call; the text that goes to the child."""
        self.last_used = now
        call.deadline = now + limit if limit else None
        token = message.meta().get("progressToken")
        if not self.shared:
            call.key = id_key(call.raw_id)  # type: ignore[assignment]
            if token is not None:
                call.raw_token = message.slice(token)
                call.token = _token_key(call.raw_token)
            self._register(call)
            return message.whole
        self._next += 1
        call.key = self._next
        wire = str(self._next)
        changes: list[tuple[Span, str]] = [(message.spans["id"], wire)]
        if token is not None:
            call.raw_token = message.slice(token)
            call.token = self._next
            changes.append((token, wire))
        self._register(call)
        return message.replaced(changes)

    def own(self, call: Call, limit: float, now: float) -> None:
        """Registers a call of the bridge's own, whose text the caller writes."""
        call.key = id_key(call.raw_id)  # type: ignore[assignment]
        call.deadline = now + limit if limit else None
        self.calls[call.key] = call

    def _register(self, call: Call) -> None:
        self.calls[call.key] = call
        if call.token is not None:
            self.tokens[call.token] = call

    def call_of(self, raw_id: str | None) -> Call | None:
        """The waiting call whose id is written `raw_id`."""
        return None if raw_id is None else self.calls.get(_safe_key(raw_id))

    def forget(self, call: Call) -> None:
        if self.calls.get(call.key) is call:
            del self.calls[call.key]
        if call.token is not None and self.tokens.get(call.token) is call:
            del self.tokens[call.token]

    def take_all(self) -> list[Call]:
        calls = list(self.calls.values())
        self.calls.clear()
        self.tokens.clear()
        return calls

    # from the child

    def receive(self, data: bytes, now: float) -> Iterator[Event]:
        """One event at a time: what follows from one is settled before the next is looked at."""
        self.last_used = now
        return self._look(self.reader.feed(data), now)

    def end(self, now: float) -> Iterator[Event]:
        return self._look(self.reader.end(), now)

    def _look(self, items: list[Message | Noise], now: float) -> Iterator[Event]:
        for item in items:
            if isinstance(item, Noise):
                yield self._noise(item)
                continue
            self.heard = True
            if item.kind == "answer":
                yield self._answer(item, now)
            elif item.kind == "notification":
                yield self._note(item)
            else:
                yield Ask(_with_version(item), item)

    def _noise(self, noise: Noise) -> Event:
        if not noise.is_answer:
            return noise
        call = self.call_of(noise.raw_id)
        if call is None and noise.raw_id is None:
            call = self._only()
        if call is None:
            return noise
        self.forget(call)
        return Broken(call, noise.why)

    def _only(self) -> Call | None:
        """The one call that waits, if it is one."""
        waiting = [c for c in self.calls.values() if c.cancelled_at is None]
        return waiting[0] if len(waiting) == 1 else None

    def _answer(self, message: Message, now: float) -> Event:
        call = self._match(message)
        if call is not None and message.raw_id in (None, "null"):
            if self.unanswerable and self._doubtful is None:
                # it may answer a notification, as some servers do: the call has a moment to show it
                self._doubtful = (call, message, now)
                call = None
        else:
            self.unanswerable = False
            if self._doubtful is not None and self._doubtful[0] is call:
                self._doubtful = None  # it answered something else
        if call is None:
            return Stray(message.whole)
        return self._settled(call, message)

    def doubtful(self, now: float) -> list[Event]:
        """An error without an id, once it is clear that it answers the only call."""
        if self._doubtful is None or now - self._doubtful[2] < _DOUBT:
            return []
        call, message, _ = self._doubtful
        self._doubtful = None
        return [self._settled(call, message)] if self.calls.get(call.key) is call else []

    def _settled(self, call: Call, message: Message) -> Answer:
        self.forget(call)
        return Answer(call, self._restored(call, message), message.is_error, message)

    def _match(self, message: Message) -> Call | None:
        raw = message.raw_id
        if raw is None or raw == "null":
            # an error without an id can only mean the one call that waits
            return self._only() if message.is_error else None
        key = message.key
        if key is None:
            return None
        call = self.calls.get(key)
        if call is not None:
            return call
        # An id that came back as text (or a text as number): only where exactly one prints as it.
        if isinstance(key, str):
            alike = [c for k, c in self.calls.items() if not isinstance(k, str) and _printed(c, k) == key]
        else:
            alike = [c for k, c in self.calls.items() if isinstance(k, str) and k == raw]
        if len(alike) == 1:
            return alike[0]
        return None

    def _restored(self, call: Call, message: Message) -> str:
        """The answer under the client's id. Well-formed answers keep every other byte."""
        spans = message.spans
        odd = "jsonrpc" not in spans or "id" not in spans or ("result" in spans and "error" in spans)
        if odd:
            self.repaired += 1
            part = "error" if message.is_error else "result"
            return f'{{"jsonrpc":"2.0","id":{call.raw_id},"{part}":{message.raw(part)}}}'
        changes: list[tuple[Span, str]] = []
        if message.raw_id != call.raw_id:
            changes.append((spans["id"], call.raw_id))
            if not self.shared:
                self.repaired += 1
        if self.shared and call.method == "subscriptions/listen" and "result" in spans:
            meta = message.object_at(message.object_at(spans["result"]).get("_meta"))
            if SUBSCRIPTION in meta:
                changes.append((meta[SUBSCRIPTION], call.raw_id))
        return message.replaced(changes) if changes else message.whole

    def _note(self, message: Message) -> Event:
        method = message.method or ""
        call = None
        changes: list[tuple[Span, str]] = []
        if method == "notifications/progress":
            span = message.params().get("progressToken")
            key = _token_key(message.slice(span))
            call = self.tokens.get(key) if key is not None else None
            if call is not None and self.shared and span is not None:
                changes.append((span, call.raw_token or "null"))
        elif self.shared and self.calls:
            span = message.meta().get(SUBSCRIPTION)
            key = _token_key(message.slice(span))
            if isinstance(key, str) and key.isdigit():
                key = int(key)
            call = self.calls.get(key) if key is not None else None
            if call is not None and span is not None:
                changes.append((span, call.raw_id))
        text = message.replaced(changes) if changes else _with_version(message)
        return Note(text, method, call)


def _with_version(message: Message) -> str:
    if "jsonrpc" in message.spans:
        return message.whole
    return '{"jsonrpc":"2.0",' + message.whole[1:].lstrip()


def _printed(call: Call, key: IdKey) -> str:
    """How the number that the child was given prints."""
    return str(key) if isinstance(key, int) else call.raw_id


def _token_key(raw: str | None) -> IdKey | None:
    return None if raw is None else _safe_key(raw)


def _safe_key(raw: str) -> IdKey:
    try:
        key = id_key(raw)
    except (NotJSON, ValueError):
        key = None
    return ("raw", raw) if key is None else key
