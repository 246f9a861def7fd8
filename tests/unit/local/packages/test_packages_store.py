"""The store with real package managers and a registry of our own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from mcpiac.local.packages import settings as settings_module
from mcpiac.local.packages import store as store_module
from mcpiac.local.packages.errors import PackageError

PROGRAM = {"index.js": "#!/usr/bin/env node\nconsole.log('hello')\n"}


def failing(shop: Any, spec: str, **options: Any) -> PackageError:
    async def run() -> PackageError:
        with pytest.raises(PackageError) as raised:
            await shop.buy(shop.open(), spec, **options)
        return raised.value

    error = asyncio.run(run())
    assert shop.leftovers() == []
    assert not [*shop.root.glob("npm/*"), *shop.root.glob("pypi/*")]
    return error


def test_an_npm_package_with_its_dependencies(shop: Any, registry: Any) -> None:
    registry.npm("left", "1.0.0", {"index.js": "module.exports = 1\n"})
    registry.npm("@scope/server", "2.0.0", PROGRAM, bin={"serve": "index.js"}, dependencies={"left": "^1.0.0"})
    told: list[str] = []
    found = asyncio.run(shop.buy(shop.open(), "npm:@scope/server@2.0.0", progress=told.append))
    assert found.path == "/opt/mcpiac/npm/@scope/server@2.0.0"
    assert found.entry == ("node", "/opt/mcpiac/npm/@scope/server@2.0.0/node_modules/@scope/server/index.js")
    assert found.env == {}
    assert found.integrity.startswith("sha512-")
    assert found.mount[1] == found.path
    tree = Path(found.mount[0])
    assert (tree / "node_modules/left/index.js").is_file()
    assert told[0] == "fetching npm:@scope/server@2.0.0"
    assert told[-1].startswith("installed @scope/server 2.0.0:")
    assert '"node_modules/left"' in (tree.parent / "lock").read_text()
    assert shop.leftovers() == []


def test_a_pypi_package(shop: Any, registry: Any) -> None:
    registry.pypi(
        "our-server", "1.2.0", {"our_server/__init__.py": "def main(): ...\n"}, scripts="our-server = our_server:main"
    )
    found = asyncio.run(shop.buy(shop.open(), "pypi:our-server@1.2.0"))
    guest = "/opt/mcpiac/pypi/our-server@1.2.0"
    assert found.entry[:3] == ("python3", "-P", "-c")
    assert f"sys.path.insert(0, '{guest}')" in found.entry[3]
    assert found.env == {"PYTHONPATH": guest}
    assert found.integrity.startswith("sha256:")
    tree = Path(found.mount[0])
    assert (tree / "our_server/__init__.py").is_file()
    assert list(tree.glob("our_server/__pycache__/*.pyc"))


def test_everything_is_read_only_and_readable_by_all(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    found = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0"))
    for folder, names, files in os.walk(found.mount[0]):
        for name in [".", *names, *files]:
            mode = os.lstat(os.path.join(folder, name)).st_mode
            if not stat.S_ISLNK(mode):
                assert mode & 0o444 == 0o444
                assert mode & 0o222 == 0


def test_a_second_ask_installs_nothing_and_many_at_once_install_once(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")

    async def run() -> None:
        store = shop.open()
        told: list[list[str]] = [[] for _ in range(5)]
        found = await asyncio.gather(*(shop.buy(store, "npm:server@1.0.0", progress=each.append) for each in told))
        assert len({each.mount for each in found}) == 1
        assert all(told)
        asked = len(registry.asked)
        assert await shop.buy(store, "npm:server@1.0.0") == found[0]
        assert await shop.buy(shop.open(), "npm:server@1.0.0") == found[0]
        assert len(registry.asked) == asked

    asyncio.run(run())
    assert registry.files(".tgz") == 1


def test_two_daemons_install_once(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")

    async def run() -> None:
        first, second = shop.open(), shop.open()
        told: list[str] = []
        one = asyncio.create_task(shop.buy(first, "npm:server@1.0.0"))
        two = asyncio.create_task(shop.buy(second, "npm:server@1.0.0", progress=told.append))
        assert (await one).mount == (await two).mount

    asyncio.run(run())
    assert registry.files(".tgz") == 1


def test_a_caller_that_gives_up_leaves_the_install_to_the_others(shop: Any, registry: Any) -> None:
    import threading

    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    registry.hold = threading.Event()

    async def run() -> None:
        store = shop.open()
        one = asyncio.create_task(shop.buy(store, "npm:server@1.0.0"))
        two = asyncio.create_task(shop.buy(store, "npm:server@1.0.0"))
        await asyncio.to_thread(registry.started.wait, 20)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        registry.hold.set()
        assert (await two).entry[0] == "node"

    asyncio.run(run())


def test_an_install_that_is_ended_leaves_nothing(shop: Any, registry: Any) -> None:
    import threading

    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    registry.hold = threading.Event()

    async def run() -> None:
        store = shop.open()
        task = asyncio.create_task(shop.buy(store, "npm:server@1.0.0"))
        await asyncio.to_thread(registry.started.wait, 20)
        assert len(shop.leftovers()) == 1
        await store.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert shop.leftovers() == []
        registry.hold.set()
        assert (await shop.buy(store, "npm:server@1.0.0")).entry[0] == "node"

    asyncio.run(run())


KILLED = """
import asyncio, sys
from functools import partial
from pathlib import Path
from mcpiac.local.egress import Relay
from mcpiac.local.netns import Dialer
from mcpiac.local.packages.process import Cell
from mcpiac.local.packages.store import Store
from mcpiac.wire import PackageItem
store = Store(Path(sys.argv[1]), Cell(lambda: sys.argv[2], partial(Relay, Dialer())))
package = PackageItem(registry="npm", name="server", version="1.0.0")
asyncio.run(store.ensure(package, settings={"HOME": sys.argv[3]}))
"""


def test_a_daemon_that_was_killed_leaves_scraps_that_the_next_install_removes(shop: Any, registry: Any) -> None:
    import subprocess
    import sys
    import threading

    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    registry.hold = threading.Event()
    words = [sys.executable, "-c", KILLED, str(shop.root), shop.cell().bwrap(), str(shop.home)]
    process = subprocess.Popen(words)
    assert registry.started.wait(20)
    process.send_signal(signal.SIGKILL)
    process.wait()
    registry.hold.set()
    assert len(shop.leftovers()) == 1
    found = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0"))
    assert Path(found.mount[0]).is_dir()
    assert shop.leftovers() == []


def test_collect_removes_what_no_sandbox_mounts(shop: Any, registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    registry.npm("other", "1.0.0", PROGRAM, bin="index.js")

    async def run() -> None:
        store = shop.open()
        kept = await shop.buy(store, "npm:server@1.0.0")
        gone = await shop.buy(store, "npm:other@1.0.0")
        (shop.root / "tmp" / "0123-scraps").mkdir()
        assert store.collect([]) == []  # both were handed out just now
        assert shop.leftovers() == []
        monkeypatch.setattr(store_module, "HANDED_SECONDS", 0.0)
        assert len(store.collect([kept.mount[0]])) == 1
        assert Path(kept.mount[0]).exists()
        assert not Path(gone.mount[0]).exists()
        assert (await shop.buy(store, "npm:other@1.0.0")).mount == gone.mount

    asyncio.run(run())


# -- code of packages


SCRIPTS = {"postinstall": "node build.js"}
BUILD = """
const fs = require('fs'), net = require('net'), os = require('os');
const found = {uid: process.getuid(), env: Object.keys(process.env), home: fs.existsSync('HOME'), pids: 0};
found.pids = fs.readdirSync('/proc').filter(name => /^[0-9]+$/.test(name)).length;
found.interfaces = Object.keys(os.networkInterfaces());
const socket = net.connect(PORT, '127.0.0.1');
socket.on('error', error => { found.network = error.code; done(); });
socket.on('connect', () => { found.network = 'connected'; done(); });
function done() { fs.writeFileSync('built.json', JSON.stringify(found)); process.exit(0); }
"""


def test_scripts_do_not_run_unless_they_are_asked_for(shop: Any, registry: Any) -> None:
    registry.npm(
        "server",
        "1.0.0",
        {**PROGRAM, "build.js": "require('fs').writeFileSync('built.json', '')"},
        bin="index.js",
        scripts=SCRIPTS,
    )
    found = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0"))
    assert not (Path(found.mount[0]) / "node_modules/server/built.json").exists()


def test_scripts_run_without_network_home_or_secret(
    shop: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "in the daemon's environment")
    shop.settings["NPM_TOKEN"] = "the registry's"
    build = BUILD.replace("PORT", str(registry.server.server_port)).replace("HOME", str(shop.home))
    registry.npm("server", "1.0.0", {**PROGRAM, "build.js": build}, bin="index.js", scripts=SCRIPTS)
    found = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0", scripts=True))
    plain = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0"))
    assert plain.mount[0] != found.mount[0]
    told = json.loads((Path(found.mount[0]) / "node_modules/server/built.json").read_text())
    assert told["network"] == "ECONNREFUSED"
    assert told["home"] is False
    assert told["pids"] < 10
    assert not {"CANARY", "NPM_TOKEN"} & set(told["env"])
    if os.geteuid() == 0:
        assert told["uid"] != 0
    assert os.stat(Path(found.mount[0]) / "node_modules/server/built.json").st_uid == os.getuid()


def test_scripts_that_fail_are_told_with_their_output(shop: Any, registry: Any) -> None:
    files = {**PROGRAM, "build.js": "console.error('no compiler here'); process.exit(3)"}
    registry.npm("server", "1.0.0", files, bin="index.js", scripts=SCRIPTS)
    error = failing(shop, "npm:server@1.0.0", scripts=True)
    assert error.code == "build_failed"
    assert "no compiler here" in error.output
    assert "without network" in error.hint


def test_a_dependency_from_git_is_not_fetched(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js", dependencies={"evil": "git+file:///tmp/evil"})
    assert failing(shop, "npm:server@1.0.0").code in ("needs_build", "install_failed")


# -- faults


def test_a_package_that_does_not_exist(shop: Any, registry: Any) -> None:
    error = failing(shop, "npm:@modelcontextprotocol/server-filesystm@1.0.0")
    assert error.code == "package_not_found"
    assert error.hint == "nearest name: @modelcontextprotocol/server-filesystem"
    error = failing(shop, "pypi:mcp-server-tyme@1.0")
    assert error.code == "package_not_found"
    assert error.hint == "nearest name: mcp-server-time"


def test_a_version_that_does_not_exist(shop: Any, registry: Any) -> None:
    for version in ("1.0.0", "1.2.0", "2.0.0"):
        registry.npm("server", version, PROGRAM, bin="index.js")
        registry.pypi("server", version, {"server.py": ""}, scripts="server = server:main")
    error = failing(shop, "npm:server@1.2.1")
    assert error.code == "version_not_found"
    assert error.hint.startswith("nearest: 1.2.0")
    assert "2.0.0" in error.hint
    error = failing(shop, "pypi:server@1.2.1")
    assert error.code == "version_not_found"
    assert error.hint == "its newest version is 2.0.0"


def test_a_registry_that_refuses(shop: Any, registry: Any) -> None:
    registry.status = 403
    assert failing(shop, "npm:server@1.0.0").code == "registry_unauthorised"
    assert failing(shop, "pypi:server@1.0.0").code == "registry_unauthorised"


def test_a_registry_that_cannot_be_reached(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "UV_RETRIES", "0")
    (shop.home / ".npmrc").write_text("registry=http://127.0.0.1:9/\nfetch-retries=0\n")
    (shop.home / ".config/pip/pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    error = failing(shop, "npm:server@1.0.0")
    assert error.code == "registry_unreachable"
    assert "npm config ls" in error.hint
    error = failing(shop, "pypi:server@1.0.0")
    assert error.code == "registry_unreachable"
    assert "index-url" in error.hint


def test_a_tarball_that_is_not_what_the_registry_says(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js", integrity="sha512-" + "A" * 86 + "==")
    assert failing(shop, "npm:server@1.0.0").code == "integrity_mismatch"


def test_a_wheel_that_is_not_what_the_index_says(shop: Any, registry: Any) -> None:
    registry.pypi("server", "1.0.0", {"server.py": ""}, scripts="server = server:main")
    status, kind, data = registry.answers["/simple/server/"]
    changed = data.partition(b"sha256=")[0] + b"sha256=" + b"0" * 64 + data.partition(b"sha256=")[2][64:]
    registry.answers["/simple/server/"] = (status, kind, changed)
    assert failing(shop, "pypi:server@1.0.0").code == "integrity_mismatch"


def test_a_source_distribution_is_refused_clearly(shop: Any, registry: Any) -> None:
    registry.pypi("server", "1.0.0", {"setup.py": "raise SystemExit('ran')"}, sdist=True)
    error = failing(shop, "pypi:server@1.0.0")
    assert error.code == "needs_build"
    assert "ran" not in error.output
    assert registry.files(".tar.gz") == 0


def test_a_library_and_a_package_with_several_programs(shop: Any, registry: Any) -> None:
    registry.npm("library", "1.0.0", {"index.js": ""})
    registry.npm("several", "1.0.0", PROGRAM, bin={"one": "index.js", "two": "index.js"})
    assert failing(shop, "npm:library@1.0.0").code == "no_program"
    error = failing(shop, "npm:several@1.0.0")
    assert error.code == "ambiguous_program"
    assert "one, two" in error.message


def test_a_full_disk(shop: Any, registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")

    def full(tree: Path) -> tuple[int, int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "check_and_freeze", full)
    error = failing(shop, "npm:server@1.0.0")
    assert error.code == "disk_full"


def test_an_install_has_a_deadline(shop: Any, registry: Any) -> None:
    import threading

    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    registry.hold = threading.Event()
    assert failing(shop, "npm:server@1.0.0", timeout=0.5).code == "install_timeout"


# -- the user's settings


def test_a_login_of_the_users_npmrc_is_used_and_kept_from_the_tree(shop: Any, registry: Any) -> None:
    host = registry.url.removeprefix("http:")
    with open(shop.home / ".npmrc", "a") as file:
        file.write(f"{host}/npm/:_authToken=${{NPM_TOKEN}}\n")
    shop.settings["NPM_TOKEN"] = "hush-hush"
    registry.npm("server", "1.0.0", PROGRAM, bin="index.js")
    found = asyncio.run(shop.buy(shop.open(), "npm:server@1.0.0"))
    assert "Bearer hush-hush" in registry.authorizations
    for path in Path(found.mount[0]).parent.rglob("*"):
        if path.is_file():
            assert b"hush-hush" not in path.read_bytes(), path


def test_a_login_in_pips_index_url_is_used_and_shown_nowhere(shop: Any, registry: Any) -> None:
    url = registry.url.replace("http://", "http://me:hush-hush@")
    (shop.home / ".config/pip/pip.conf").write_text(f"[global]\nindex-url = {url}/simple\n")
    registry.pypi("server", "1.0.0", {"server.py": "def main(): ..."}, scripts="server = server:main")
    found = asyncio.run(shop.buy(shop.open(), "pypi:server@1.0.0"))
    assert any(each and each.startswith("Basic ") for each in registry.authorizations)
    for path in Path(found.mount[0]).parent.rglob("*"):
        if path.is_file():
            assert b"hush-hush" not in path.read_bytes(), path
    registry.answers.clear()
    error = failing_again(shop, "pypi:gone@1.0.0")
    assert "hush-hush" not in error.message + error.output + error.hint


def failing_again(shop: Any, spec: str) -> PackageError:
    async def run() -> PackageError:
        with pytest.raises(PackageError) as raised:
            await shop.buy(shop.open(), spec)
        return raised.value

    return asyncio.run(run())
