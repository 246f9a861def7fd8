"""What sessions and the stateless pool share: the list of commands, limits, counters, what is known."""

from __future__ import annotations

import json
from typing import NamedTuple

from . import commands as do
from .channel import Call, Channel
from .gate import BRIDGE_ERROR, error_text
from .limits import Limits
from .lines import Noise
from .stream import Counters

_SHOWN = 200


class Ended(NamedTuple):
    """How a child ended."""

    status: str  # "exit 1", "signal 9 (SIGKILL)", "closed its stdout", "cannot start: ..."
    stderr: tuple[str, ...]  # its last lines, values of the environment masked

    def error(self, raw_id: str | None) -> str:
        said = "; it said: " + " | ".join(self.stderr) if self.stderr else ""
        data = json.dumps({"status": self.status, "stderr": list(self.stderr)})
        return error_text(raw_id, BRIDGE_ERROR, f"the server ended ({self.status}){said}", data)


class Facts:
    """What has been learnt about the server. None: not known yet."""

    __slots__ = ("failure", "legacy", "modern", "modern_version", "started")

    def __init__(self) -> None:
        self.modern: bool | None = None
        self.legacy: bool | None = None
        self.modern_version = "2026-07-28"
        self.started = False  # some child has answered something
        self.failure: Ended | None = None  # how the last child ended that had answered nothing


class Core:
    def __init__(self, limits: Limits) -> None:
        self.out: list[do.Command] = []
        self.limits = limits
        self.counters = Counters()
        self.facts = Facts()
        self.channels: dict[int, Channel] = {}
        self._children = 0

    def spawn(self, now: float, shared: bool) -> Channel:
        self._children += 1
        channel = Channel(self._children, self.limits.line, shared, now)
        self.channels[channel.child] = channel
        self.counters.children += 1
        self.out.append(do.Spawn(channel.child))
        return channel

    def write(self, channel: Channel, text: str) -> None:
        if "\n" in text or "\r" in text:  # only between tokens: a string cannot hold them
            text = text.replace("\n", " ").replace("\r", " ")
        data = text.encode("utf-8") + b"\n"
        self.counters.bytes_in += len(data)
        self.out.append(do.Write(channel.child, data))

    def end(self, channel: Channel, why: str) -> None:
        self.out.append(do.End(channel.child, why))

    def log(self, text: str) -> None:
        self.out.append(do.Log(text))

    def noise(self, channel: Channel, noise: Noise) -> None:
        self.counters.noise += 1
        shown = noise.text[:_SHOWN]
        self.log(f"child {channel.child}: on stdout, {noise.why}: {json.dumps(shown)}")

    def fail(self, calls: list[Call], ended: Ended, now: float) -> None:
        for call in calls:
            if call.stream is not None and not call.purpose:
                self.counters.errors += 1
                call.stream.answer(ended.error(call.raw_id), now)
