"""One server's set-up as files and a command: what is put into a guest, and how what it printed is read.

The values travel in a JSON file; the work is done in the guest by ``program/`` with one of its managers. Its *text*
is shipped, as one archive that Python runs; the product never imports it. Secrets appear by name only.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from mcpiac.guest import bridges
from mcpiac.guest.bridges import Word
from mcpiac.model.codec import digest, file_bytes
from mcpiac.model.diagnostic import error
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import CommandResult, Installed
from mcpiac.model.spec import Bridge, FileSpec, Package, ServerSpec

SETUP_VERSION = "1"
"""Changes when a set-up by this mcpiac would do something else than one by an earlier one."""

GuestKind = Literal["agent", "systemd"]
"""What keeps services running in a guest: our agent (local sandboxes) or systemd (virtual machines)."""

HOME = "/home/user"
FOLDER = f"{HOME}/.mcpiac"
FACTS_KEY = "mcpiac-setup"
FAILURE_KEY = "mcpiac-setup-error"
FACTS_MAX = 256 * 1024
"""Bytes of a facts line that are read: it comes from the guest."""

MODULES: Mapping[str, tuple[str, ...]] = {
    "agent": ("__init__", "fault", "words", "files", "sockets", "run", "manager_agent"),
    "systemd": (
        *("__init__", "fault", "words", "files", "sockets", "run"),
        *("manager_systemd", "environment", "packages"),
    ),
}
MAIN = """import sys
from program.manager_{kind} import Manager
from program.run import main
if sys.argv[1] == "--environment":
    from program.environment import main as fill
    sys.exit(fill(sys.argv[2:]))
sys.exit(main(sys.argv, Manager))
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What an exec action does: put ``files`` (guest path → bytes), then run ``command`` to its end.

    ``inputs`` is the digest of all that decides the outcome; equal inputs need no second run. ``bridge`` is resolved.
    """

    files: Mapping[str, bytes]
    command: str
    inputs: str
    bridge: Bridge | None
    packages: tuple[Package, ...] = field(default=())


def packages(spec: ServerSpec, bridge: Bridge | None) -> tuple[Package, ...]:
    """The packages that a server needs in its guest: its own, and its bridge's where that is one."""
    wanted = (spec.package, bridges.package(bridge))
    return tuple(dict.fromkeys(p for p in wanted if p is not None))


def render(
    spec: ServerSpec,
    *,
    server: str,
    kind: GuestKind,
    port: int,
    installed: Sequence[Installed] = (),
    bridge: Bridge | None = None,
    bridge_program: bytes | None = None,
    setup_version: str | None = None,
    write: Mapping[str, str | None] | None = None,
    remove: Mapping[str, str | None] | None = None,
    overwrite: bool = False,
    wait: float | None = None,
) -> Setup:
    """The set-up of ``server``.

    ``installed`` are the provider's packages (``agent``); a ``systemd`` guest installs its own. ``bridge``: None is
    this mcpiac's own (``bridges.resolve``). ``bridge_program`` None leaves the bundled bridge that is in the guest.
    ``write`` names the declared files to write (None: all) and ``remove`` those that are declared no more, each
    with the SHA-256 that was recorded of it: a file that is neither as recorded nor as declared was edited in the
    guest; writing it needs ``overwrite``, and it is never removed. ``wait`` is how long the server may take until
    its port answers, in seconds (``timeouts.check``, if not given). Raises ``Diagnosed`` for what a bridge cannot do.
    """
    bridge = None if spec.transport == "http" else bridge or bridges.resolve()
    needed = packages(spec, bridge)
    lying = {i.package: i for i in installed}
    words = _server_words(spec)
    if bridge is not None:
        if kind == "systemd" and spec.bind == "any" and bridge.name == "mcpiac":
            raise error(
                "bridge-loopback-only",
                f"the bridge mcpiac of {server} listens on loopback only",
                hint="remove `bind: any`: it is for servers that speak HTTP themselves",
            )
        host = "0.0.0.0" if spec.bind == "any" else "127.0.0.1"  # noqa: S104 - asked for by the stack
        words = bridges.words(bridge, words, port=port, path=spec.path, host=host)
    env = dict(spec.env)
    if spec.transport == "http":
        env.setdefault("PORT", str(port))
    values: dict[str, Any] = {
        "setup": setup_version or SETUP_VERSION,
        "manager": kind,
        "server": server,
        "port": port,
        "bind": spec.bind,
        "bridge": None if bridge is None else {"name": bridge.name, "version": bridge.version},
        "packages": [_package(p, spec, bridge, lying.get(p)) for p in needed],
        "words": words,
        "env": env,
        "pass": sorted(spec.secrets),
        "files": [_file(path, file) for path, file in sorted(spec.files.items())],
    }
    inputs = digest({**values, "files": [{**f, "content": None} for f in values["files"]]})
    due = dict.fromkeys(spec.files) if write is None else write
    for file in values["files"]:
        file["write"] = file["path"] in due
        file["recorded"] = due.get(file["path"])
        if not file["write"]:
            file.pop("content", None)
    values |= {
        "program": spec.command[0] if spec.command else None,
        "home": HOME,
        "wait": wait if wait is not None else spec.timeouts.check,
        "remove": dict(remove or {}),
        "overwrite": overwrite,
    }
    at = f"{FOLDER}/{server}.setup.json"
    files = {f"{FOLDER}/setup.pyz": archive(kind), at: json.dumps(values, indent=1).encode()}
    if bridge is not None and bridge.name == "mcpiac" and bridge_program is not None:
        files[bridges.PROGRAM] = bridge_program
    return Setup(files, _command(kind, files, at), inputs, bridge, needed)


def parse_facts(stdout: str) -> dict[str, Any]:
    """The facts of a set-up that succeeded; ``{}`` when its output holds none. What a guest says is not trusted."""
    return _last(stdout, FACTS_KEY) or {}


def read(result: CommandResult) -> dict[str, Any]:
    """The facts of a set-up command, or ``ProviderError``: ``rejected`` with the guest's own code, and the server's
    last lines as ``output``."""
    facts = _last(result.stdout, FACTS_KEY)
    if result.exit_code == 0 and facts is not None:
        return facts
    told = _last(result.stdout, FAILURE_KEY)
    tail = "\n".join((result.stderr or result.stdout).splitlines()[-20:])
    if told is not None:
        lines = told.get("lines")
        output = "\n".join(str(line) for line in lines) if isinstance(lines, list) else ""
        raise ProviderError(
            "rejected",
            str(told.get("summary", "the set-up failed")),
            code=str(told.get("code", "setup-failed")),
            hint=str(told.get("hint", "")),
            output=output[-4000:],
        )
    if result.timed_out:
        raise ProviderError(
            "rejected",
            "the set-up in the guest took longer than it may",
            code="setup-timeout",
            hint="raise `timeouts: {setup: SECONDS}` of the server",
            output=tail,
        )
    raise ProviderError(
        "rejected", f"the set-up in the guest exited with {result.exit_code}", code="setup-failed", output=tail
    )


def _last(stdout: str, key: str) -> dict[str, Any] | None:
    for line in reversed(stdout.splitlines()):
        if line.startswith('{"' + key + '"') and len(line) <= FACTS_MAX:
            try:
                value = json.loads(line)
            except ValueError:
                return None
            found = value.get(key) if isinstance(value, dict) else None
            return found if isinstance(found, dict) else None
    return None


def _server_words(spec: ServerSpec) -> list[Word]:
    start: list[Word] = [{"entry": "server"}] if spec.package is not None else list(spec.command or ())
    return [*start, *spec.args]


def _package(package: Package, spec: ServerSpec, bridge: Bridge | None, lying: Installed | None) -> dict[str, Any]:
    both = {"server": spec.package, "bridge": bridges.package(bridge)}
    roles = [role for role, one in both.items() if one == package]
    return {
        "roles": roles,
        "registry": package.registry,
        "name": package.name,
        "version": package.version,
        "extras": list(package.extras),
        "scripts": spec.build.scripts and "server" in roles,
        "entry": list(lying.entry) if lying else None,
        "env": dict(lying.env) if lying else {},
        "integrity": lying.integrity if lying else "",
    }


def _file(path: str, file: FileSpec) -> dict[str, Any]:
    if file.secret is not None:
        return {"path": path, "mode": file.mode, "secret": file.secret}
    data = file_bytes(file)
    content = base64.b64encode(data).decode()
    return {"path": path, "mode": file.mode, "sha256": hashlib.sha256(data).hexdigest(), "content": content}


@cache
def archive(kind: GuestKind) -> bytes:
    """The set-up program as a zip archive that ``python3`` runs: the same bytes for the same texts."""
    texts = resources.files("mcpiac.guest") / "program"
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as target:
        target.writestr(zipfile.ZipInfo("__main__.py"), MAIN.format(kind=kind))
        for name in MODULES[kind]:
            target.writestr(zipfile.ZipInfo(f"program/{name}.py"), (texts / f"{name}.py").read_bytes())
    return held.getvalue()


def _command(kind: GuestKind, files: Mapping[str, bytes], values: str) -> str:
    program = f"{FOLDER}/setup.pyz"
    if kind == "agent":
        return shlex.join(["python3", "-I", program, values])
    # A server runs as the user who owns the folder, so what root runs is copied away and compared first.
    root = "/var/lib/mcpiac"
    names = [program, values]
    sums = "".join(f"{hashlib.sha256(files[n]).hexdigest()}  {root}/{n.rsplit('/', 1)[1]}\n" for n in names)
    script = (
        f"set -eu; umask 077; mkdir -p {root}; cp -- {shlex.join(names)} {root}/; "
        f"printf %s {shlex.quote(sums)} | sha256sum --check --quiet -; "
        f"exec python3 -I {root}/setup.pyz {root}/{shlex.quote(values.rsplit('/', 1)[1])}"
    )
    return shlex.join(["sudo", "-n", "sh", "-c", script])
