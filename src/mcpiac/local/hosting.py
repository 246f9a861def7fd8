"""Which port of this machine a hosted port has, and its token: chosen once, recorded, never changed.

The values here are what the daemon keeps in its record (0600) of a sandbox. They outlive hiding, pauses, stops and
restarts of the daemon, so that the same sandbox and port always have the same URL and token.
"""

from __future__ import annotations

import secrets
import socket
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcpiac.local.proxy_rules import Route

PORTS = range(18400, 20400)
"""Hosted ports are chosen from here: below the ports that Linux gives to outgoing connections (32768 and up)."""

TOKEN_BYTES = 32


class HostingError(Exception):
    """``code`` is ``port_taken`` or ``no_free_port``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Hosting:
    """One guest port that is, or was, hosted. Holds its token: never printed, never in an answer but to ``host``."""

    port: int
    listen: int
    token: str
    public: bool = False
    localhost: bool = False
    title: str = ""
    hidden: bool = False

    def __repr__(self) -> str:
        return f"Hosting(port={self.port}, listen={self.listen}, public={self.public}, hidden={self.hidden})"

    @property
    def url(self) -> str:
        """The URL without its token."""
        return f"http://127.0.0.1:{self.listen}"

    @property
    def url_with_token(self) -> str:
        """As ``host`` answers it: with ``?_token=`` unless public."""
        return self.url if self.public else f"{self.url}?_token={self.token}"

    def route(self, sandbox: str) -> Route:
        """What the proxy needs to serve it."""
        return Route(sandbox, self.port, self.listen, None if self.public else self.token.encode())

    def to_json(self) -> dict[str, Any]:
        """For the daemon's own record only: it holds the token."""
        return {
            "port": self.port,
            "listen": self.listen,
            "token": self.token,
            "public": self.public,
            "localhost": self.localhost,
            "title": self.title,
            "hidden": self.hidden,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Hosting:
        return cls(
            port=int(data["port"]),
            listen=int(data["listen"]),
            token=str(data["token"]),
            public=bool(data.get("public", False)),
            localhost=bool(data.get("localhost", False)),
            title=str(data.get("title", "")),
            hidden=bool(data.get("hidden", False)),
        )


def new_token() -> str:
    """256 random bits, safe in URLs and cookies."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def host(
    before: Hosting | None,
    port: int,
    *,
    public: bool,
    localhost: bool,
    title: str,
    taken: Collection[int],
    seed: str,
) -> Hosting:
    """The record of a port that is to be hosted: the one from ``before`` made visible, or a new one.

    ``taken`` are the ports of all records of this daemon, hidden ones too. ``seed`` (the daemon's instance id)
    spreads the daemons of one machine, so that a port that one gives up for a while is not another's first choice.
    Raises HostingError ``no_free_port``.
    """
    if before is not None:
        return replace(before, public=public, localhost=localhost, title=title, hidden=False)
    return Hosting(port, choose(taken, seed), new_token(), public, localhost, title)


def hide(before: Hosting) -> Hosting:
    """Kept with its port and token, for when it is hosted again."""
    return replace(before, hidden=True)


def rotate(before: Hosting) -> Hosting:
    """The same URL with a new token; the old one is refused from the moment the proxy has this."""
    return replace(before, token=new_token())


def choose(taken: Collection[int], seed: str) -> int:
    """A port that is in no record and on which nobody listens now."""
    first = zlib.crc32(seed.encode()) % (len(PORTS) // 100) * 100
    for step in range(len(PORTS)):
        port = PORTS[(first + step) % len(PORTS)]
        if port not in taken and _is_free(port):
            return port
    raise HostingError("no_free_port", f"no port between {PORTS.start} and {PORTS.stop - 1} of this machine is free")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
