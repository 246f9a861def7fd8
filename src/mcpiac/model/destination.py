"""A place that code without network may reach all the same: an exact name and a port."""

from __future__ import annotations

import re
from dataclasses import dataclass

PORT = 443
"""The port of a destination that names none."""
MOST = 32
"""Destinations in one list."""

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"({_LABEL}\.)*[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?\Z")
"""The last label begins with a letter: resolvers read `127.1` and `0x7f.1` as addresses (inet_aton(3))."""
_NAME_LONGEST = 253
_FORM = "write a name, or NAME:PORT; without a port it is 443"


class BadDestination(ValueError):
    """A text that is no destination. ``hint``: what to write."""

    def __init__(self, summary: str, hint: str = _FORM) -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """Written as ``host``, or ``host:port`` where that is not 443."""

    host: str
    port: int = PORT

    def __str__(self) -> str:
        return self.host if self.port == PORT else f"{self.host}:{self.port}"


def parse(text: str) -> Destination:
    """``host[:port]``, letters made small. Raises ``BadDestination``: addresses, patterns, URLs, localhost."""
    if "://" in text or "/" in text or "@" in text:
        raise BadDestination("this is a URL or a path; a host is a name alone")
    if "*" in text:
        raise BadDestination("there are no patterns: each name is listed exactly as it is asked for")
    if _address(text):
        raise BadDestination("this is an address; only names are listed", "write the name that it has")
    host, colon, digits = text.lower().partition(":")
    if colon and not re.fullmatch(r"[1-9][0-9]{0,4}", digits):
        raise BadDestination("after the `:` comes a port, 1 to 65535")
    port = int(digits) if colon else PORT
    if port > 65535:
        raise BadDestination("after the `:` comes a port, 1 to 65535")
    if _address(host):
        raise BadDestination("this is an address; only names are listed", "write the name that it has")
    if not host.isascii():
        raise BadDestination("a name has ASCII letters only", "write its xn-- form")
    if len(host) > _NAME_LONGEST or not _NAME.match(host):
        raise BadDestination("this is no name of a host")
    if host == "localhost" or host.endswith(".localhost"):
        raise BadDestination("this machine itself is never reached from a sandbox", "leave it out")
    return Destination(host, port)


def _address(text: str) -> bool:
    import ipaddress  # not for the many stacks that list no host

    try:
        ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return text.startswith("[")
    return True
