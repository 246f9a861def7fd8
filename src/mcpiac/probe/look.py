"""Runs inside a sandbox, as text; the product never imports it. Python 3.9 or newer, standard library only.

Looks at what can be seen from here: every environment that can be read, the files that it is asked for, the addresses
that it is told to try. Values never leave, and none comes in: both sides are compared outside by an HMAC under a key
that is made for one run. argv[1] is JSON: key (hex), canary (a path to make, or null), read (paths), try (list of
[address, port]), gateway_port (tried at the default gateway, or null).
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import hmac
import json
import os
import re
import socket
import sys
from collections.abc import Iterator

asked = json.loads(sys.argv[1])
hash_key = bytes.fromhex(asked["key"])
SHORTEST = 6  # a value shorter than this says nothing when it is met again
FILE_MAX = 4 * 1024 * 1024
CONNECT_SECONDS = 1.5


def mac(data: bytes) -> str:
    return hmac.new(hash_key, data, hashlib.sha256).hexdigest()[:32]


def environments() -> Iterator[tuple[bytes, bytes]]:
    """Every readable NAME=VALUE: of all processes, and of the files that hold a sandbox's environment."""
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                for item in file.read().split(b"\0"):
                    name, _, value = item.partition(b"=")
                    yield name, value
        except OSError:
            continue
    try:
        with open("/run/mcpiac/env", "rb") as file:
            for key, held in json.load(file).items():
                yield key.encode(), str(held).encode()
    except (OSError, ValueError, AttributeError):
        pass
    try:
        with open("/etc/sandboxer/env", "rb") as file:
            for line in file.read().splitlines():
                name, _, value = line.partition(b"=")
                yield name.strip(), value.strip().strip(b"\"'")
    except OSError:
        pass


def environment() -> dict[str, dict[str, list[str]]]:
    """name -> macs of its values and of the pieces of them, such as the password in a URL."""
    found: dict[str, dict[str, set[str]]] = {}
    for name, value in environments():
        if not name:
            continue
        macs = found.setdefault(name.decode("utf-8", "replace"), {"whole": set(), "pieces": set()})
        if len(value) >= SHORTEST:
            macs["whole"].add(mac(value))
        pieces = re.split(rb"[\s=:,;@/&?\"']+", value)
        macs["pieces"].update(mac(p) for p in pieces if len(p) >= SHORTEST and p != value)
    return {name: {kind: sorted(macs) for kind, macs in both.items()} for name, both in found.items()}


def content(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return file.read(FILE_MAX)
    except (OSError, ValueError):
        return None


def addresses() -> list[str]:
    """Our own addresses that are not loopback."""
    found = set()
    try:
        with open("/proc/net/fib_trie") as file:
            lines = file.read().splitlines()
        for before, line in zip(lines, lines[1:]):  # noqa: B905, RUF007 - Python 3.9
            if "/32 host LOCAL" in line:
                found.add(before.split()[-1])
    except OSError:
        pass
    try:
        with open("/proc/net/if_inet6") as file:
            for line in file:
                found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    except OSError:
        pass
    return sorted(a for a in found if not a.startswith(("127.", "fe80:")) and a != "::1")


def gateways() -> list[str]:
    found = []
    try:
        with open("/proc/net/route") as file:
            for line in file.read().splitlines()[1:]:
                parts = line.split()
                if parts[1] == "00000000":
                    found.append(socket.inet_ntoa(bytes.fromhex(parts[2])[::-1]))
    except (OSError, IndexError, ValueError):
        pass
    return found


def listens() -> list[int]:
    """Ports on which something in this network listens."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}") as file:
                for line in file.read().splitlines()[1:]:
                    parts = line.split()
                    if parts[3] == "0A":
                        found.add(int(parts[1].rsplit(":", 1)[1], 16))
        except (OSError, IndexError, ValueError):
            continue
    return sorted(found)


def answers(target: tuple[str, int]) -> bool:
    try:
        with socket.create_connection((target[0], target[1]), CONNECT_SECONDS):
            return True
    except OSError:
        return False


files: dict[str, str] = {}
told = {"environment": environment(), "addresses": addresses(), "listens": listens(), "files": files}
if asked.get("canary"):
    fd = os.open(asked["canary"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as canary:
        canary.write(os.urandom(32).hex().encode())
for path in asked.get("read") or []:
    data = content(path)
    if data is not None:
        files[path] = mac(data)
targets = [tuple(t) for t in asked.get("try") or []]
if asked.get("gateway_port"):
    targets += [(gateway, asked["gateway_port"]) for gateway in gateways()]
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    told["answered"] = [list(t) for t, yes in zip(targets, pool.map(answers, targets)) if yes]  # noqa: B905
print(json.dumps({"mcpiac-look": told}))
