"""What the API lets in, and what doctor makes of what bwrap says."""

from __future__ import annotations

from typing import Any

import pytest

from mcpiac import wire
from mcpiac.local import machine
from mcpiac.local.api.packages import _check as check_package
from mcpiac.local.api.sandboxes import _cursor, check_egress, check_env, check_size, check_ttl
from mcpiac.local.errors import Refused
from mcpiac.local.stage import FIRST_UID, UIDS_PER_DAEMON, first_uid


@pytest.mark.parametrize(
    "env",
    [
        {"": "x"},
        {"1A": "x"},
        {"A-B": "x"},
        {"A\n": "x"},
        {"A" * 129: "x"},
        {"SANDBOXER_TOKEN": "canary"},
        {"A": "can\0ary"},
        {f"A{n}": "x" for n in range(101)},
        {"A": "x" * 65536},
        {"A": "ü" * 32768},
    ],
)
def test_bad_environments(env: dict[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        check_env(env)
    assert caught.value.code == "invalid_env"
    assert "canary" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_good_environments() -> None:
    env = {f"A{n}": "x" for n in range(99)} | {"_" * 128: "\n\t ü"}
    assert check_env(env) == env


@pytest.mark.parametrize("egress", ["all", {"kind": "all"}, [{"host": "x"}], {"kind": "list", "rules": []}, 1])
def test_egress_that_cannot_be_enforced_is_refused(egress: Any) -> None:
    with pytest.raises(Refused) as caught:
        check_egress(egress)
    assert caught.value.code == "egress_unsupported"


def test_no_egress() -> None:
    for egress in (None, "none", {"kind": "none", "rules": []}):
        check_egress(egress)


@pytest.mark.parametrize("ttl", [0, -1, 365 * 86400 + 1])
def test_bad_ttl(ttl: int) -> None:
    with pytest.raises(Refused):
        check_ttl(ttl)


def test_sizes_are_the_wires() -> None:
    for size in wire.SIZES:
        assert check_size(size) == size
    with pytest.raises(Refused):
        check_size("tiny")


@pytest.mark.parametrize("text", ["", "x", "////", "AAAA", "\xff"])
def test_cursors_of_others(text: str) -> None:
    with pytest.raises(Refused):
        _cursor(text)


@pytest.mark.parametrize(
    "package",
    [
        ("npm", "--global", "1.0.0"),
        ("npm", "../x", "1.0.0"),
        ("npm", "a/b", "1.0.0"),
        ("npm", "x", "file:/etc"),
        ("npm", "x", "^1.0"),
        ("npm", "x", ""),
        ("npm", "x", "-1"),
        ("npm", "x@1", "1.0.0"),
        ("pypi", "-r", "1.0"),
        ("pypi", "x[extra]", "1.0"),
        ("pypi", "x", "1.0 --index"),
        ("git", "x", "1.0"),
    ],
)
def test_nothing_but_an_exact_package(package: tuple[str, str, str]) -> None:
    registry, name, version = package
    with pytest.raises(Refused) as caught:
        check_package(wire.PackageItem(registry=registry, name=name, version=version))
    assert caught.value.code == "invalid_package"


def test_exact_packages() -> None:
    check_package(wire.PackageItem(registry="npm", name="@scope/pkg.js", version="1.0.0-rc.1+b"))
    check_package(wire.PackageItem(registry="pypi", name="mcp-server_time", version="1!2.0.post1", extras=("a-b",)))


def test_daemons_uids_do_not_overlap_and_stay_below_the_signed_end() -> None:
    firsts = {first_uid(f"{n:08x}00000000") for n in range(200)}
    assert len(firsts) == 200
    assert all((uid - FIRST_UID) % UIDS_PER_DAEMON == 0 for uid in firsts)
    assert first_uid("f" * 16) + UIDS_PER_DAEMON <= 2**31 - 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "proc-masked"),
        ("bwrap: Creating new namespace failed: nesting depth or /proc/… exceeded (ENOSPC)", "userns-limit"),
        ("bwrap: No permissions to creating new namespace, likely because the kernel…", "userns-forbidden"),
        ("bwrap: unknown option --disable-userns", "bwrap-fails"),
        ("", "bwrap-fails"),
    ],
)
def test_what_bwrap_says(said: str, code: str) -> None:
    finding = machine.classify(said, "/usr/bin/bwrap", "system")
    assert (finding.code, finding.level) == (code, "error")
    assert finding.cure
    assert finding.means


@pytest.mark.parametrize(
    ("release", "version", "code"),
    [
        ("6.18.44", "Linux version 6.18.44", "kernel"),
        ("5.15.153.1-microsoft-standard-WSL2", "Linux version 5.15.153.1-microsoft-standard-WSL2", "kernel"),
        ("4.4.0-19041-Microsoft", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)", "wsl1"),
        ("4.19.0-27-amd64", "Linux version 4.19.0-27-amd64", "kernel-too-old"),
        ("5.10.0-30-amd64", "Linux version 5.10.0", "kernel"),
    ],
)
def test_kernels(release: str, version: str, code: str) -> None:
    assert machine.kernel(release, version).code == code
