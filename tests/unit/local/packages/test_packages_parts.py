"""Trees, programs, and what package managers say, each without an install."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcpiac.local.packages import npm, pypi
from mcpiac.local.packages.errors import CODES, PackageError, from_npm, from_uv, nearest, nearest_versions, reading
from mcpiac.local.packages.tree import check_and_freeze, remove
from mcpiac.wire import PackageItem

GUEST = "/opt/mcpiac/x"


def plant(root: Path, kind: str) -> None:
    target = root / "planted"
    if kind == "setuid":
        target.write_text("")
        target.chmod(0o4755)
    elif kind == "setgid":
        target.write_text("")
        target.chmod(0o2755)
    elif kind == "pipe":
        os.mkfifo(target)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(target))
    else:
        target.symlink_to(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "setuid",
        "setgid",
        "pipe",
        "socket",
        "/etc/passwd",
        "../outside",
        "sub/../../outside",
        ".",
        "../..",
        "/dev/null",
    ],
)
def test_what_does_not_belong_in_a_tree(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    plant(root, kind)
    with pytest.raises(PackageError) as raised:
        check_and_freeze(root)
    assert raised.value.code == "bad_tree"
    assert "planted" in raised.value.message
    remove(root)
    assert not root.exists()


def test_what_belongs_there_is_made_read_only(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "program.js").write_text("x")
    (root / "program.js").chmod(0o700)
    (root / "data").write_text("yy")
    (root / "data").chmod(0o600)
    (root / "bin/program").symlink_to("../program.js")
    (root / "dangling").symlink_to("missing")
    assert check_and_freeze(root) == (5, 3)
    assert oct((root / "program.js").stat().st_mode)[-3:] == "555"
    assert oct((root / "data").stat().st_mode)[-3:] == "444"
    assert oct((root / "bin").stat().st_mode)[-3:] == "555"
    remove(root)
    assert not root.exists()


def npm_tree(folder: Path, name: str, bin: Any, script: str = "#!/usr/bin/env node\n") -> PackageItem:
    package = folder / "node_modules" / name
    (package / "dist").mkdir(parents=True)
    (package / "dist/index.js").write_text(script)
    (package / "package.json").write_text(json.dumps({"name": name, "version": "1.0.0", "bin": bin}))
    return PackageItem(registry="npm", name=name, version="1.0.0")


@pytest.mark.parametrize(
    ("name", "bin", "expected"),
    [
        ("server", "dist/index.js", ("node", f"{GUEST}/node_modules/server/dist/index.js")),
        ("server", "./dist/index.js", ("node", f"{GUEST}/node_modules/server/dist/index.js")),
        ("@s/server", {"any": "dist/index.js"}, ("node", f"{GUEST}/node_modules/@s/server/dist/index.js")),
        (
            "@s/server",
            {"a": "a.js", "server": "dist/index.js"},
            ("node", f"{GUEST}/node_modules/@s/server/dist/index.js"),
        ),
        ("server", None, "no_program"),
        ("server", {}, "no_program"),
        ("server", {"a": "dist/index.js", "b": "dist/index.js"}, "ambiguous_program"),
        ("server", "../other/index.js", "no_program"),
        ("server", "/bin/sh", "no_program"),
        ("server", "missing.js", "no_program"),
    ],
)
def test_the_program_of_an_npm_package(name: str, bin: Any, expected: Any, tmp_path: Path) -> None:
    package = npm_tree(tmp_path, name, bin)
    if isinstance(expected, str):
        with pytest.raises(PackageError) as raised:
            npm._entry(package, tmp_path, GUEST)
        assert raised.value.code == expected
    else:
        assert npm._entry(package, tmp_path, GUEST) == expected


def test_a_program_that_is_no_node_script_is_run_itself(tmp_path: Path) -> None:
    package = npm_tree(tmp_path, "server", "dist/index.js", "#!/bin/sh\n")
    assert npm._entry(package, tmp_path, GUEST) == (f"{GUEST}/node_modules/server/dist/index.js",)


def pypi_tree(folder: Path, name: str, scripts: str) -> tuple[PackageItem, Path]:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_17_x86_64\n")
    (info / "entry_points.txt").write_text(scripts)
    return PackageItem(registry="pypi", name=name, version="1.0"), info


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ("[console_scripts]\nany = a.b:main\n", "from a.b import main; sys.exit(main())"),
        ("[console_scripts]\nany = a.b:App.run\n", "from a.b import App; sys.exit(App.run())"),
        ("[console_scripts]\nany = a.b:main [extra]\n", "from a.b import main; sys.exit(main())"),
        ("[console_scripts]\nOther = x:y\nmy_server = a:main\n", "from a import main; sys.exit(main())"),
        ("[console_scripts]\none = x:y\ntwo = a:main\n", "ambiguous_program"),
        ("[console_scripts]\nany = a; import os:main\n", "no_program"),
        ("[console_scripts]\nany = a:main()\n", "no_program"),
        ("[console_scripts]\nany\n = a:main\n", "bad_metadata"),
        ("[gui_scripts]\nany = a:main\n", "no_program"),
        ("", "no_program"),
    ],
)
def test_the_program_of_a_pypi_package(scripts: str, expected: str, tmp_path: Path) -> None:
    package, info = pypi_tree(tmp_path, "my-server", scripts)
    if expected in CODES:
        with pytest.raises(PackageError) as raised, reading("pypi:my-server==1.0"):
            pypi._entry(package, info, GUEST)
        assert raised.value.code == expected
    else:
        entry = pypi._entry(package, info, GUEST)
        assert entry[:3] == ("python3", "-P", "-c")
        assert entry[3].endswith(expected)


def test_a_module_that_can_be_run_needs_no_script(tmp_path: Path) -> None:
    package, info = pypi_tree(tmp_path, "my-server", "")
    (tmp_path / "my_server").mkdir()
    (tmp_path / "my_server/__main__.py").write_text("")
    assert pypi._entry(package, info, GUEST) == ("python3", "-P", "-m", "my_server")


def test_the_hash_is_that_of_the_wheel_that_was_taken(tmp_path: Path) -> None:
    package, info = pypi_tree(tmp_path, "my-server", "")
    lock = """
[[packages]]
name = "other"
version = "1.0"
wheels = [{ url = "https://x/other-1.0-py3-none-any.whl", hashes = { sha256 = "00" } }]
[[packages]]
name = "my-server"
version = "1.0"
wheels = [
  { url = "https://x/my_server-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", hashes = { sha256 = "aa" } },
  { url = "https://x/my_server-1.0-1-cp311-abi3.cp311-manylinux_2_17_x86_64.whl", hashes = { sha256 = "bb" } },
]
"""
    assert pypi._integrity(lock, package, info) == "sha256:bb"


NPM = [
    ("E404", "Not Found - GET https://r/x", "package_not_found"),
    ("ETARGET", "No matching version found for x@9.", "version_not_found"),
    ("E401", "401 Unauthorized", "registry_unauthorised"),
    ("E403", "403 Forbidden", "registry_unauthorised"),
    ("EINTEGRITY", "sha512-… integrity checksum failed", "integrity_mismatch"),
    ("ENOSPC", "no space left on device", "disk_full"),
    ("EBADENGINE", "Unsupported engine", "runtime_too_old"),
    ("ECONNREFUSED", "FetchError", "registry_unreachable"),
    ("ENOTFOUND", "getaddrinfo", "registry_unreachable"),
    ("SELF_SIGNED_CERT_IN_CHAIN", "self-signed certificate in certificate chain", "registry_unreachable"),
    ("E500", "500 Internal Server Error", "registry_unreachable"),
    ("EWHATEVER", "something", "install_failed"),
]


@pytest.mark.parametrize("text", ["[]", '{"bin": 5}', '{"bin": [1]}', '{"bin": {"a": null}}', "nonsense", ""])
def test_a_package_json_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    package = npm_tree(tmp_path, "server", "dist/index.js")
    (tmp_path / "node_modules/server/package.json").write_text(text)
    with pytest.raises(PackageError) as raised, reading("npm:server@1.0.0"):
        npm._entry(package, tmp_path, GUEST)
    assert raised.value.code in ("bad_metadata", "no_program")


@pytest.mark.parametrize(("code", "summary", "expected"), NPM)
def test_what_npm_says(code: str, summary: str, expected: str) -> None:
    said = json.dumps({"error": {"code": code, "summary": summary, "detail": ""}})
    error = from_npm("npm:x@1", f"some warning\n{said}", "npm error …")
    assert error.code == expected
    assert summary in error.message or expected == "disk_full"


@pytest.mark.parametrize("stdout", ["", "{", "null", "[]", '{"error": null}'])
def test_npm_that_says_nothing_sensible(stdout: str) -> None:
    error = from_npm("npm:x@1", stdout, "Killed\n")
    assert error.code == "install_failed"
    assert "Killed" in error.message


def test_of_what_npm_printed_only_what_says_something_is_shown() -> None:
    said = '{"error": {"code": "ETARGET", "summary": "no"}}'
    stderr = "npm http fetch GET 200 https://r/x 12ms\nnpm error code ETARGET\nnpm error Log files were not written\n"
    assert from_npm("npm:x@1", said, stderr).output == "npm error code ETARGET"


UV = [
    (
        "cause: Because x was not found in the package registry and you require x==1, we can conclude",
        "package_not_found",
    ),
    ("cause: Because there is no version of x==9 and you require x==9, we can conclude that", "version_not_found"),
    ("cause: Because x==1 has no usable wheels and you require x==1, we can conclude that", "needs_build"),
    ("cause: Because the current Python version (3.11.7) does not satisfy Python>=3.12 and x", "runtime_too_old"),
    ("Request failed after 3 retries cause: Failed to fetch: https://i/ cause: dns error", "registry_unreachable"),
    ("hint: An index URL (https://i) could not be queried … credentials (401 Unauthorized)", "registry_unauthorised"),
    ("Failed to download `x` cause: Hash mismatch for `x` Expected: sha256:00", "integrity_mismatch"),
    ("failed to write: No space left on device (os error 28)", "disk_full"),
    ("something else", "install_failed"),
]


@pytest.mark.parametrize(("said", "expected"), UV)
def test_what_uv_says(said: str, expected: str) -> None:
    assert from_uv("pypi:x==1", f"error: No solution found\n  {said}").code == expected


def test_every_code_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs/packages.md").read_text()
    assert [code for code in CODES if f"`{code}`" not in page] == []


def test_logins_in_urls_are_never_shown() -> None:
    error = from_uv("x", "error: Failed to fetch: https://me:hush@i.example/simple/x/ cause: dns error")
    assert "hush" not in error.message + error.output


def test_nearest() -> None:
    assert nearest("server-filesystm", ["server-filesystem", "server-everything"]) == ("server-filesystem",)
    assert nearest("unlike", ["server-filesystem"]) == ()
    assert nearest_versions("1.2.1", ["1.0.0", "1.2.0", "9.9.9"])[0] == "1.2.0"
    assert nearest_versions("1.2.1", ["1.0.0", "1.2.0", "9.9.9"])[-1] == "9.9.9"
    assert nearest_versions("1", []) == ()
