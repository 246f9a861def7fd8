"""The kernel's socket table says who listens where."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpiac.guest.program import sockets
from mcpiac.guest.program.fault import Failed


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield held


def test_a_listener_is_seen_with_its_address_and_its_process(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    ((ip, inode),) = sockets.listeners(port)
    assert ip == "127.0.0.1"
    assert sockets.owner(inode) == os.getpid()
    assert sockets.answers(ip, port)


def test_a_closed_port_has_no_listener(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    listening.close()
    assert sockets.listeners(port) == []
    assert not sockets.answers("127.0.0.1", port)


def test_any_address_is_told_apart() -> None:
    with socket.create_server(("0.0.0.0", 0)) as held:
        port = held.getsockname()[1]
        ((ip, _),) = sockets.listeners(port)
        assert ip == "0.0.0.0"
        assert sockets.answers(ip, port)
    with pytest.raises(Failed, match="not on loopback only"):
        sockets.assert_private("a", ["127.0.0.1", "0.0.0.0"], "loopback")
    sockets.assert_private("a", ["0.0.0.0"], "any")
    sockets.assert_private("a", ["127.0.0.1", "::1"], "loopback")


@pytest.mark.parametrize(
    ("text", "ip"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("00000000000000000000000000000000", "::"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the samples are of a little-endian machine")
def test_addresses_of_the_table(text: str, ip: str) -> None:
    assert sockets.address(text) == ip


def test_a_network_of_its_own_has_only_lo(tmp_path: Path) -> None:
    table = tmp_path / "dev"
    table.write_text("Inter-| Receive\n face |bytes\n    lo: 0 0\n")
    assert sockets.only_loopback_network(str(table))
    table.write_text("Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 1\n")
    assert not sockets.only_loopback_network(str(table))


def test_a_port_of_another_process_is_refused(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with pytest.raises(Failed, match=f"process {os.getpid()}"):
        sockets.refuse_taken(port, {"up": False, "pid": None})
    with pytest.raises(Failed, match="is taken"):
        sockets.refuse_taken(port, {"up": True, "pid": 2**22})
    sockets.refuse_taken(port, {"up": True, "pid": os.getpid()})


def test_offspring_descends_from_its_parent() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert sockets.descends(child.pid, os.getpid())
        assert not sockets.descends(os.getpid(), child.pid)
    finally:
        child.communicate(b"\n")
