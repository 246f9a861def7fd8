"""PyPI packages: resolved to wheels with hashes, installed from them by uv, started by the guest's python3."""

from __future__ import annotations

import configparser
import re
import time
import tomllib
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

from mcpiac.local.packages.errors import KNOWN, PackageError, from_uv, nearest, reading
from mcpiac.local.packages.npm import Made
from mcpiac.local.packages.process import Cell, Installers, Progress, fetch
from mcpiac.local.packages.settings import uv_environment
from mcpiac.wire import PackageItem

LOCK = "pylock.mcpiac.toml"
_ASK_SECONDS = 15.0


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


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
    timeout: float,
    progress: Progress,
) -> Made:
    """Install into ``tree``, which will be ``guest`` in the sandboxes. Wheels only: no code of the package runs."""
    if programs.uv is None:
        raise PackageError("no_installer", "there is no uv to install PyPI packages with", hint="pip install uv")
    env, index_flags = uv_environment(settings)
    env["TMPDIR"] = str(scratch)
    extras = f"[{','.join(package.extras)}]" if package.extras else ""
    wanted = f"{package.name}{extras}=={package.version}"
    uv = programs.uv
    flags = [*index_flags, "--cache-dir", str(cache), "--python", programs.python, "--color", "never"]
    flags += ["--no-python-downloads", "--no-build", "--preview-features", "pylock"]
    deadline = time.monotonic() + timeout

    async def run(words: list[str], *, seconds: float, quiet: bool = False) -> tuple[int, str]:
        ended = await fetch(
            cell,
            [uv, "pip", *words, *flags],
            env=env,
            writable=[str(tree), str(cache), str(scratch)],
            cwd=str(scratch),
            timeout=seconds,
            on_line=None if quiet else _told(progress),
        )
        return ended.code, ended.stderr

    async def resolve(requirement: str, lock: Path, seconds: float) -> tuple[int, str]:
        source = scratch / f"{lock.stem}.in"
        source.write_text(requirement + "\n")
        return await run(["compile", str(source), "--quiet", "-o", str(lock)], seconds=seconds, quiet=True)

    progress(f"resolving pypi:{wanted}")
    lock = scratch / LOCK
    code, said = await resolve(wanted, lock, timeout)
    if code != 0:
        failure = from_uv(f"pypi:{wanted}", said)
        if failure.code == "version_not_found":
            newest = scratch / "pylock.newest.toml"
            code, _ = await resolve(package.name, newest, _ASK_SECONDS)
            if code == 0:
                failure.hint = f"its newest version is {_version(newest.read_text(), package.name)}"
        elif failure.code == "package_not_found" and (names := nearest(package.name, KNOWN["pypi"])):
            failure.hint = "nearest name: " + ", ".join(names)
        raise failure
    progress(f"fetching pypi:{wanted}")
    words = ["install", "-r", str(lock), "--target", str(tree), "--link-mode", "copy", "--compile-bytecode"]
    code, said = await run([*words, "--no-progress"], seconds=max(deadline - time.monotonic(), 1.0))
    if code != 0:
        raise from_uv(f"pypi:{wanted}", said)
    with reading(f"pypi:{wanted}"):
        text = lock.read_text()
        info = _dist_info(tree, package)
        return Made(_entry(package, info, guest), {"PYTHONPATH": guest}, _integrity(text, package, info), text)


def _told(progress: Progress) -> Progress:
    def on_line(line: str) -> None:
        words = line.strip()
        if words.startswith(("Downloading", "Prepared", "Installed", "Bytecode")):
            progress(words)

    return on_line


def _packages(lock: str) -> list[dict[str, object]]:
    return list(tomllib.loads(lock).get("packages", []))


def _version(lock: str, name: str) -> str:
    return next(
        (str(each.get("version")) for each in _packages(lock) if each.get("name") == normalised(name)), "unknown"
    )


def _dist_info(tree: Path, package: PackageItem) -> Path:
    """The metadata folder of the package itself, whose version must be the one asked for."""
    for found in tree.glob("*.dist-info"):
        name, _, version = found.name.removesuffix(".dist-info").partition("-")
        if normalised(name) == normalised(package.name):
            about = HeaderParser().parsestr((found / "METADATA").read_text(encoding="utf-8"))
            if _release(about["Version"] or version) != _release(package.version):
                raise PackageError("install_failed", f"uv installed {about['Version']} in place of {package.version}")
            return found
    raise PackageError("install_failed", f"uv did not install {package.name}")


def _release(version: str) -> str:
    """Two spellings of a version that PEP 440 calls equal, made equal as far as a pin needs it (1.0 and 1.0.0)."""
    return re.sub(r"(\.0)+$", "", version.strip().lower().removeprefix("v"))


def _integrity(lock: str, package: PackageItem, info: Path) -> str:
    """The registry's hash of the wheel that was taken: the one with the tags that the installed metadata tells."""
    about = HeaderParser().parsestr((info / "WHEEL").read_text(encoding="utf-8"))
    tags = {tag.strip() for tag in about.get_all("Tag") or ()}
    for each in _packages(lock):
        if each.get("name") != normalised(package.name):
            continue
        wheels = [wheel for wheel in each.get("wheels", []) if isinstance(wheel, dict)]  # type: ignore[attr-defined]
        for wheel in wheels:
            file = str(wheel.get("name") or str(wheel.get("url") or wheel.get("path") or "").rpartition("/")[2])
            if len(wheels) == 1 or _tags(file) & tags:
                return "".join(f"{kind}:{value}" for kind, value in sorted(wheel.get("hashes", {}).items())[:1])
    return ""


def _tags(file: str) -> set[str]:
    """The tags of a wheel's file name (PyPA "Binary distribution format": compressed tag sets)."""
    parts = file.removesuffix(".whl").split("-")[-3:]
    if len(parts) != 3:
        return set()
    pythons, abis, platforms = (part.split(".") for part in parts)
    return {f"{python}-{abi}-{platform}" for python in pythons for abi in abis for platform in platforms}


def _entry(package: PackageItem, info: Path, guest: str) -> tuple[str, ...]:
    """The program of the package: its only console script, or the one named like it, or ``python -m``.

    The script is started through ``-c``, since its file names the interpreter that installed it. ``-P``: what lies in
    the working directory is never imported in place of a module.
    """
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    file = info / "entry_points.txt"
    if file.is_file():
        parser.read_string(file.read_text(encoding="utf-8"))
    scripts = dict(parser.items("console_scripts")) if parser.has_section("console_scripts") else {}
    if not scripts:
        module = normalised(package.name).replace("-", "_")
        if (info.parent / module / "__main__.py").is_file():
            return ("python3", "-P", "-m", module)
        hint = "it is a library; a server that it holds needs `command:`"
        raise PackageError("no_program", f"pypi:{package.name} has no program to run (no console script)", hint=hint)
    named = {normalised(name): name for name in scripts}
    name = next(iter(scripts)) if len(scripts) == 1 else named.get(normalised(package.name))
    if name is None:
        listed = ", ".join(sorted(scripts))
        raise PackageError(
            "ambiguous_program", f"pypi:{package.name} has several programs and none is `{package.name}`: {listed}"
        )
    target = scripts[name].partition("[")[0].strip()
    module, _, attribute = (part.strip() for part in target.partition(":"))
    dotted = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
    if not re.fullmatch(dotted, module) or not re.fullmatch(dotted, attribute) or not re.fullmatch(r"[\w.+-]+", name):
        raise PackageError(
            "no_program", f"pypi:{package.name} names a program that cannot be started: {name} = {target}"
        )
    first = attribute.partition(".")[0]
    code = (
        f"import sys; sys.path.insert(0, {guest!r}); sys.argv[0] = {name!r}; "
        f"from {module} import {first}; sys.exit({attribute}())"
    )
    return ("python3", "-P", "-c", code)
