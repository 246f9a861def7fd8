"""Install scripts of npm packages: whether they run, and what they reach, in real builds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.local.packages.conftest import item

from mcpiac.local.egress import Relay
from mcpiac.local.netns import Dialer
from mcpiac.local.packages.errors import PackageError
from mcpiac.local.packages.store import _Rights
from mcpiac.model.destination import Destination

PROGRAM = {"index.js": "#!/usr/bin/env node\nconsole.log('hello')\n"}
SCRIPTS = {"postinstall": "node build.js"}
WRITES = "require('fs').writeFileSync('built', process.env.npm_lifecycle_event)"
REACHES = """
const fs = require('fs'), net = require('net');
const raw = (host, port, path) => new Promise(done => {
  let said = '';
  const socket = net.connect(port, host, () => socket.end(`GET ${path} HTTP/1.0\\r\\n\\r\\n`));
  socket.on('data', piece => said += piece);
  socket.on('end', () => done(said.split('\\r\\n\\r\\n')[1]));
  socket.on('error', error => done(error.code));
  socket.setTimeout(10000, () => { socket.destroy(); done('silence'); });
});
const fetched = (host, port) => fetch(`http://${host}:${port}/data`).then(
  answer => answer.text(), error => error.cause.code);
(async () => {
  const other = fs.readFileSync('/etc/hosts', 'utf8');
  fs.writeFileSync('built.json', JSON.stringify({
    fetch: await fetched('files.example', PORT),
    raw: await raw('files.example', PORT, '/data'),
    unlisted: await fetched('other.example', PORT),
    address: await raw('127.0.0.1', PORT, '/data'),
    outside: await raw('93.184.216.34', 443, '/'),
    port: await raw('files.example', 1, '/'),
    hosts: other,
  }));
})();
"""


async def here(host: str, port: int) -> Sequence[str]:
    assert host == "files.example"
    return ("127.0.0.1",)


def buy(shop: Any, *hosts: Destination, relay: Any = None, scripts: bool = True, **options: Any) -> Path:
    """The package ``server`` 1.0.0, bought; its own folder."""

    async def run() -> Path:
        dialer = Dialer()
        try:
            way = partial(relay, dialer) if relay else None
            found = await shop.buy(shop.open(way), "npm:server@1.0.0", scripts=scripts, hosts=hosts, **options)
            return Path(found.mount[0]) / "node_modules/server"
        finally:
            dialer.close()

    return asyncio.run(run())


def local(dialer: Dialer, destinations: Sequence[Destination], tell: Any) -> Relay:
    """Names lead to this machine's loopback, which only this test's policy lets them."""
    return Relay(dialer, destinations, tell, resolve=here, refuse=lambda address: "")


def test_scripts_run_when_and_only_when_they_are_asked_for(shop: Any, registry: Any) -> None:
    files = {**PROGRAM, "build.js": WRITES}
    registry.npm("part", "1.0.0", files, scripts={"install": "node build.js"})
    registry.npm("server", "1.0.0", files, bin="index.js", scripts=SCRIPTS, dependencies={"part": "1.0.0"})
    told: list[str] = []
    without, built = buy(shop, scripts=False), buy(shop, progress=told.append)
    assert not list(without.parent.glob("*/built"))
    assert (built / "built").read_text() == "postinstall"
    assert (built.parent / "part/built").read_text() == "install"
    assert "running its install scripts, without network" in told
    assert not [line for line in told if "allowScripts" in line]


def test_scripts_reach_the_listed_name_and_nothing_else(shop: Any, registry: Any) -> None:
    port = registry.server.server_port
    registry.answers["/data"] = (200, "text/plain", b"the bytes")
    build = REACHES.replace("PORT", str(port))
    registry.npm("server", "1.0.0", {**PROGRAM, "build.js": build}, bin="index.js", scripts=SCRIPTS)
    told: list[str] = []
    built = buy(shop, Destination("files.example", port), relay=local, progress=told.append)
    assert json.loads((built / "built.json").read_text()) == {
        "fetch": "the bytes",
        "raw": "the bytes",
        "unlisted": "ENOTFOUND",
        "address": "ECONNREFUSED",
        "outside": "ENETUNREACH",
        "port": "ECONNREFUSED",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n127.1.0.1 files.example\n",
    }
    assert f"running its install scripts, without network but files.example:{port}" in told


def test_a_name_that_leads_inwards_is_refused_before_any_script_runs(shop: Any, registry: Any) -> None:
    registry.npm("server", "1.0.0", {**PROGRAM, "build.js": WRITES}, bin="index.js", scripts=SCRIPTS)

    def strict(dialer: Dialer, destinations: Sequence[Destination], tell: Any) -> Relay:
        return Relay(dialer, destinations, tell, resolve=here)

    told: list[str] = []
    with pytest.raises(PackageError) as raised:
        buy(shop, Destination("files.example"), relay=strict, progress=told.append)
    assert raised.value.code == "host_refused"
    assert raised.value.message == "files.example resolves to 127.0.0.1, which is loopback"
    assert not [line for line in told if "scripts" in line]
    assert shop.leftovers() == []


def test_a_failed_script_is_told_what_it_could_reach(shop: Any, registry: Any) -> None:
    files = {**PROGRAM, "build.js": "process.exit(3)"}
    registry.npm("server", "1.0.0", files, bin="index.js", scripts=SCRIPTS)
    with pytest.raises(PackageError) as raised:
        buy(shop, Destination("files.example"), relay=local)
    assert raised.value.code == "build_failed"
    assert "without network but files.example;" in raised.value.hint
    assert "hosts: […]" in raised.value.hint


def test_the_hosts_are_part_of_what_was_built(shop: Any) -> None:
    """A script may fall back on something else where it cannot download: such a tree is another one."""
    one, two = Destination("files.example"), Destination("files.example", 8443)

    def key(spec: str, scripts: bool, *hosts: Destination) -> str:
        package = item(spec)
        return shop.open()._key(package, _Rights.of(package, scripts, hosts))

    npm, pypi = "npm:server@1.0.0", "pypi:server@1.0.0"
    assert (
        len({key(npm, True, *hosts) for hosts in ((), (one,), (two,), (one, two), (two, one), (one, two, one))}) == 4
    )
    assert key(npm, False) == key(npm, False, one) != key(npm, True)
    assert key(pypi, True) == key(pypi, True, one)


def test_a_build_that_cannot_start_says_why(shop: Any, registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out is waited for; where the sandbox never comes up, nothing hangs."""
    from mcpiac.local.packages import process

    registry.npm("server", "1.0.0", {**PROGRAM, "build.js": WRITES}, bin="index.js", scripts=SCRIPTS)
    monkeypatch.setattr(process, "GUEST_TREE", "/proc/nowhere")
    with pytest.raises(PackageError) as raised:
        buy(shop, Destination("files.example"), relay=local, timeout=30.0)
    assert raised.value.code == "build_failed"
    assert "/proc/nowhere" in raised.value.output
