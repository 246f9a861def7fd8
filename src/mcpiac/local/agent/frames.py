"""The conversation with the agent: frames of a 4-byte big-endian length and a JSON object in UTF-8.

One connection carries one request (its first frame, ``{"op": …}``) and the answers to it, the last of which is
followed by end of file. Shared by both sides; bytes travel as base64 text.
"""

from __future__ import annotations

import binascii
import json

SOCKET = b"\0mcpiac-agent"
PROTOCOL = 1
MAX_FRAME = 48 * 1024 * 1024
"""Longest frame either side accepts, in bytes: a file of ``MAX_FILE`` in base64, and what surrounds it."""
MAX_FILE = 32 * 1024 * 1024
CHUNK = 64 * 1024
"""Output of a command travels in pieces of at most this many bytes."""


class FrameError(ValueError):
    """What came is not a frame: too long, or no JSON object."""


def encode(message: dict) -> bytes:  # type: ignore[type-arg]
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes is too long")
    return len(body).to_bytes(4, "big") + body


def length(head: bytes | bytearray) -> int:
    """How long the body behind these 4 bytes is; raises FrameError above ``MAX_FRAME``."""
    size = int.from_bytes(head[:4], "big")
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes is too long")
    return size


def decode(body: bytes) -> dict:  # type: ignore[type-arg]
    """The message of a frame's body; raises FrameError."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise FrameError(f"not JSON: {fault}") from None
    if not isinstance(message, dict):
        raise FrameError("not a JSON object")
    return message


def pack(data: bytes) -> str:
    """Bytes as text for a frame."""
    return binascii.b2a_base64(data, newline=False).decode()


def unpack(text: object) -> bytes:
    """The inverse of ``pack``; raises FrameError."""
    if not isinstance(text, str):
        raise FrameError("no base64 text")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as fault:
        raise FrameError(f"not base64: {fault}") from None
