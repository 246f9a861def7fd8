"""Who listens where, from the kernel's own tables: a server's flags are not believed."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .fault import Failed

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"


def address(text: str) -> str:
    """An address of /proc/net/tcp or tcp6 (proc(5)): groups of four bytes, each in host order."""
    groups = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    raw = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    if raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def listeners(port: int, tables: Sequence[str] = TABLES) -> list[tuple[str, str]]:
    """(address, inode) of each socket that listens on ``port``."""
    found = []
    for table in tables:
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        for row in rows:
            ip, at = row[1].split(":")
            if row[3] == LISTEN and int(at, 16) == port:
                found.append((address(ip), row[9]))
    return found


def is_loopback(ip: str) -> bool:
    return ip.startswith("127.") or ip == "::1"


def only_loopback_network(table: str = "/proc/net/dev") -> bool:
    """Whether this machine's network has nothing but ``lo``."""
    with open(table) as lines:
        return [line.split(":")[0].strip() for line in lines if ":" in line] == ["lo"]


def answers(ip: str, port: int) -> bool:
    """Whether a connection to a listener is taken."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, ip)  # noqa: S104 - read from the table, not bound
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0


def owner(inode: str) -> int | None:
    """The pid that holds a socket, where this user may see it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == f"socket:[{inode}]":
                        return int(pid)
    return None


def descends(pid: int, ancestor: int) -> bool:
    """Whether ``pid`` is ``ancestor`` or one of its offspring."""
    while pid > 0 and pid != ancestor:
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == ancestor


def refuse_taken(port: int, status: Mapping[str, Any]) -> None:
    """The port must be free, or held by the service itself."""
    for ip, inode in listeners(port):
        pid = owner(inode)
        if status["up"] and (pid is None or not status["pid"] or descends(pid, status["pid"])):
            continue
        who = f"process {pid} ({_command(pid)})" if pid else "another process"
        raise Failed(
            "guest-port-taken",
            f"port {port} in the guest is taken: {who} listens on {ip}",
            "give the server another `port`, or stop that process",
        )


def assert_private(server: str, ips: Sequence[str], bind: str) -> None:
    """A server listens on loopback only, unless any address was asked for or there is no other network."""
    open_to = [ip for ip in ips if not is_loopback(ip)]
    if bind == "any" or not open_to or only_loopback_network():
        return
    raise Failed(
        "listens-on-all",
        f"the server of {server} listens on {', '.join(open_to)}, not on loopback only",
        "have it listen on 127.0.0.1, or write `bind: any` if it cannot",
    )


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"
