"""The limits of the bridge and their defaults. Times are seconds, sizes bytes."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    body: int = 64 << 20  # a request body
    line: int = 64 << 20  # a line of the server's stdout
    sessions: int = 64  # sessions, and beside them children of the stateless era
    idle: float = 1800.0  # until an unused session or child is ended
    call: float = 3600.0  # until a call without an answer or progress fails; 0: never
    start: float = 60.0  # until an initialize without an answer fails
    probe: float = 20.0  # until a server that does not answer server/discover counts as an older one
    queue: int = 1024  # events that wait for one slow client before notifications are dropped
    queue_bytes: int = 8 << 20
    hold_bytes: int = 64 << 20  # undelivered bytes of one child before its stdout is left unread
    client: float = 60.0  # until a client that reads nothing is disconnected
    keepalive: float = 15.0  # between comments on a silent stream
    cancel: float = 5.0  # until a cancelled call without an answer is answered by the bridge
    store: int = 256  # events kept for resuming, for each session
    store_bytes: int = 4 << 20
    grace: float = 10.0  # for what is pending at TERM
