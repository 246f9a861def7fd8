"""Registries of our own on this machine's loopback, so that npm and uv really run and no network is needed."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mcpiac.local.driver import candidates
from mcpiac.local.egress import Relay
from mcpiac.local.netns import Dialer
from mcpiac.local.packages.process import Cell
from mcpiac.local.packages.store import Store, StoredPackage
from mcpiac.local.packages.tree import remove
from mcpiac.wire import PackageItem

BUILD_UID = 799_321


class Registry:
    """An npm registry (``/npm/``) and a PyPI index (``/simple/``) that hold what a test puts into them."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.hold: threading.Event | None = None
        self.started = threading.Event()
        self.status: int | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers.get("Authorization"))
                status, kind, body = registry.answers.get(self.path, (404, "application/json", b"{}"))
                if registry.status is not None:
                    status, body = registry.status, b"{}"
                if self.path.endswith((".tgz", ".whl")):
                    registry.started.set()
                    if registry.hold is not None:
                        registry.hold.wait(20)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def files(self, ending: str) -> int:
        return sum(path.endswith(ending) for path in self.asked)

    def npm(
        self,
        name: str,
        version: str,
        files: dict[str, str],
        *,
        integrity: str | None = None,
        **manifest: Any,
    ) -> None:
        """Publish an npm package; ``manifest`` are further keys of its package.json."""
        about = {"name": name, "version": version, **manifest}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, text in {"package.json": json.dumps(about), **files}.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size, entry.mode = len(text.encode()), 0o755 if path.endswith(".js") else 0o644
                archive.addfile(entry, io.BytesIO(text.encode()))
        data = packed.getvalue()
        short = name.rpartition("/")[2]
        tarball = f"/npm/{name}/-/{short}-{version}.tgz"
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": self.url + tarball, "integrity": integrity or f"sha512-{digest}"}
        listed = f"/npm/{name.replace('/', '%2f')}"
        versions: dict[str, Any] = {}
        if listed in self.answers:
            versions = json.loads(self.answers[listed][2])["versions"]
        versions[version] = {**about, "dist": dist}
        packument = {"name": name, "dist-tags": {"latest": version}, "versions": versions}
        self.answers[listed] = (200, "application/json", json.dumps(packument).encode())
        self.answers[tarball] = (200, "application/octet-stream", data)

    def pypi(self, name: str, version: str, files: dict[str, str], *, scripts: str = "", sdist: bool = False) -> None:
        """Publish a wheel (or, for ``sdist``, only a source distribution) of pure Python."""
        flat = name.replace("-", "_")
        info = f"{flat}-{version}.dist-info"
        tag = "py3-none-any"
        content = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        if scripts:
            content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
        record = f"{info}/RECORD"
        content[record] = "".join(f"{path},,\n" for path in [*content, record])
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, text in content.items():
                archive.writestr(path, text)
        file = f"{flat}-{version}.tar.gz" if sdist else f"{flat}-{version}-{tag}.whl"
        data = packed.getvalue()
        path = f"/files/{file}"
        self.answers[path] = (200, "application/octet-stream", data)
        listed = f"/simple/{name}/"
        before = self.answers[listed][2] if listed in self.answers else b""
        link = f'<a href="{self.url}{path}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>\n'
        self.answers[listed] = (200, "text/html", before + link.encode())


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    if made.hold is not None:
        made.hold.set()
    made.server.shutdown()
    made.server.server_close()


class Shop:
    """A store that buys from the test's registry, configured as a user would: by files in his home."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.home = folder / "home"
        self.root = folder / "store"
        (self.home / ".config/pip").mkdir(parents=True)
        (self.home / ".npmrc").write_text(f"registry={registry.url}/npm/\nfetch-retries=0\n")
        (self.home / ".config/pip/pip.conf").write_text(f"[global]\nindex-url = {registry.url}/simple\n")
        self.settings = {"HOME": str(self.home), "PIP_CONFIG_FILE": ""}

    def cell(self, relay: Any = None) -> Cell:
        """As root, code of packages runs under a uid of its own, as the daemon does it."""
        found = next((each.path for each in candidates()), None) or shutil.which("bwrap")
        assert found is not None, "no bwrap on this machine"
        uid = BUILD_UID if os.geteuid() == 0 else None
        return Cell(lambda: found, relay or partial(Relay, Dialer()), uid=uid)

    def open(self, relay: Any = None) -> Store:
        """``relay``: how scripts get out; left out, as in the product."""
        return Store(self.root, self.cell(relay))

    async def buy(self, store: Store, spec: str, **options: Any) -> StoredPackage:
        return await store.ensure(item(spec), settings=self.settings, **options)

    def leftovers(self) -> list[str]:
        """What lies in the store beside whole packages and caches."""
        return sorted(os.listdir(self.root / "tmp")) if (self.root / "tmp").exists() else []


def item(spec: str) -> PackageItem:
    """``npm:name@version`` or ``pypi:name@version``."""
    registry, _, rest = spec.partition(":")
    name, _, version = rest.rpartition("@")
    return PackageItem(registry=registry, name=name, version=version)


@pytest.fixture
def shop(registry: Registry, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """In a folder of its own that any uid may walk through."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="mcpiac-store-"))
    folder.chmod(0o755)
    yield Shop(folder, registry)
    remove(folder)
