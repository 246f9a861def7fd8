"""Talks to the agent of a sandbox, whose every word is untrusted: each frame is bounded, each wait has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcpiac.local.agent.frames import SOCKET, FrameError, decode, encode, length
from mcpiac.local.netns import Dialer

SMALL_FRAME = 2 * 1024 * 1024
"""Longest answer, in bytes, to everything but a file's content."""
ANSWER_SECONDS = 20.0
CONNECT_SECONDS = 10.0


class AgentError(Exception):
    """The agent refused: ``code`` as it named it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class AgentGone(Exception):
    """The agent does not answer as it should: no connection, silence, nonsense, or an early end."""


class Conversation:
    """One connection, after its request was sent."""

    def __init__(self, reader: asyncio.StreamReader, largest: int) -> None:
        self._reader = reader
        self._largest = largest

    async def next(self, timeout: float | None) -> dict[str, Any] | None:
        """The next frame, None at the end. Raises AgentGone, AgentError."""
        try:
            async with asyncio.timeout(timeout):
                head = await self._reader.readexactly(4)
                size = length(head)
                if size > self._largest:
                    raise FrameError(f"a frame of {size} bytes is too long")
                frame = decode(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError as fault:
            if fault.partial:
                raise AgentGone("the agent's answer was cut") from None
            return None
        except TimeoutError:
            raise AgentGone("the agent did not answer in time") from None
        except (FrameError, OSError) as fault:
            raise AgentGone(f"the agent's answer cannot be read: {fault}") from None
        if "error" in frame:
            raise AgentError(str(frame["error"])[:64], str(frame.get("message", ""))[:1000])
        return frame


class Link:
    """The way to one agent."""

    def __init__(self, dialer: Dialer, pid: int) -> None:
        self._dialer = dialer
        self._pid = pid

    @asynccontextmanager
    async def converse(
        self, message: Mapping[str, Any], *, largest: int = SMALL_FRAME
    ) -> AsyncIterator[Conversation]:
        """Send a request and read its answers. Raises AgentGone when it cannot be sent."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sock = await self._dialer.connect(self._pid, SOCKET)
                reader, writer = await asyncio.open_unix_connection(sock=sock)
        except (OSError, TimeoutError) as fault:
            raise AgentGone(f"the agent cannot be reached: {fault or 'no answer'}") from None
        try:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    writer.write(encode(dict(message)))
                    await writer.drain()
            except (OSError, TimeoutError) as fault:
                raise AgentGone(f"the agent takes no request: {fault or 'no answer'}") from None
            yield Conversation(reader, largest)
        finally:
            writer.transport.abort()

    async def ask(
        self, message: Mapping[str, Any], *, timeout: float = ANSWER_SECONDS, largest: int = SMALL_FRAME
    ) -> dict[str, Any]:
        """One request, one answer."""
        async with self.converse(message, largest=largest) as conversation:
            answer = await conversation.next(timeout)
        if answer is None:
            raise AgentGone("the agent ended the conversation without an answer")
        return answer
