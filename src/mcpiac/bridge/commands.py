"""What the core tells the edge to do. The edge carries them out in order."""

from __future__ import annotations

from typing import NamedTuple, Union

Headers = list[tuple[str, str]]


class Spawn(NamedTuple):
    """Start the server as child number `child`."""

    child: int


class Write(NamedTuple):
    """Write to a child's stdin."""

    child: int
    data: bytes


class End(NamedTuple):
    """End a child, its process group and what left the group: stdin closed, TERM, KILL."""

    child: int
    why: str


class Reading(NamedTuple):
    """Stop or go on reading a child's stdout."""

    child: int
    on: bool


class Respond(NamedTuple):
    """Answer an exchange (one HTTP request) at once and whole."""

    exchange: int
    status: int
    headers: Headers
    body: bytes


class Begin(NamedTuple):
    """Begin an answer of unknown length, status 200."""

    exchange: int
    headers: Headers


class Data(NamedTuple):
    """A part of the answer begun."""

    exchange: int
    data: bytes


class Finish(NamedTuple):
    """The answer begun is complete."""

    exchange: int


class Abort(NamedTuple):
    """Close the connection of an exchange: its client does not read."""

    exchange: int


class Wake(NamedTuple):
    """Call `Hub.wake` after so many seconds."""

    seconds: float


class Log(NamedTuple):
    """A line for the log; never a body, never a value of the environment."""

    text: str


class Quit(NamedTuple):
    """Nothing is left: end the bridge with status 0."""


Command = Union[Spawn, Write, End, Reading, Respond, Begin, Data, Finish, Abort, Wake, Log, Quit]  # noqa: UP007 - evaluated, and 3.9 has no |
