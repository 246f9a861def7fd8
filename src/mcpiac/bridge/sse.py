"""Server-sent events: how a message is written on an event stream."""

from __future__ import annotations

KEEPALIVE = b": keep-alive\n\n"
HEADERS = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
]

# Some clients end a line at these too. In JSON they can stand only inside a string, where an escape
# means the same.
_LINE_ENDS = (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def event(text: str, event_id: str | None = None) -> bytes:
    """One event that carries the JSON `text`."""
    if "\r" in text or "\n" in text:
        text = text.replace("\r", " ").replace("\n", " ")
    if not text.isascii():
        for char, escape in _LINE_ENDS:
            if char in text:
                text = text.replace(char, escape)
    head = "event: message\n" if event_id is None else "id: " + event_id + "\nevent: message\n"
    return (head + "data: " + text + "\n\n").encode("utf-8", "surrogatepass")


def priming(event_id: str, retry: int) -> bytes:
    """The first event of a resumable stream (2025-11-25): an id to resume from, no data.

    `retry`: milliseconds that a client waits before it comes back.
    """
    return f"id: {event_id}\nretry: {retry}\ndata:\n\n".encode("ascii")
