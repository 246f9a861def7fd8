"""Package names and exact versions, by the registries' own grammars; nothing else may reach a package manager.

npm: the rules of ``validate-npm-package-name`` for new packages, and SemVer 2.0.0 (the pattern of semver.org).
PyPI: names and extras by PEP 508, normalised by PEP 503 and 685; versions by PEP 440.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mcpiac.model.spec import Package, Registry
from mcpiac.stack.grammar import Bad
from mcpiac.stack.looks import shown

NPM_NAME = r"(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*"
PYPI_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_NPM_NAME = re.compile(NPM_NAME + r"\Z")
_NPM_LONGEST = 214
_NPM_REFUSED = frozenset({"node_modules", "favicon.ico"})
_PYPI = re.compile(rf"({PYPI_NAME})(?:\[([^\]]*)\])?\Z")
_PYPI_NAME = re.compile(PYPI_NAME + r"\Z")
_SEMVER = re.compile(
    r"(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?\Z"
)
_RANGE = re.compile(r"[\^~<>=*!|,]|\|\||(?:^|\.)[xX](?:\.|$)| - |^[0-9]+(?:\.[0-9]+)?\Z")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_LONGEST_VERSION = 128


@lru_cache(maxsize=4096)
def parse_name(text: str) -> tuple[Registry, str, tuple[str, ...]]:
    """``npm:NAME`` or ``pypi:NAME[extra,…]`` → registry, name, extras."""
    registry, colon, rest = text.partition(":")
    if not colon or registry not in ("npm", "pypi"):
        hint = "write: npm:NAME or pypi:NAME"
        raise Bad("bad-package", "a package is named with its registry, npm: or pypi:", hint)
    return ("npm", _npm_name(rest), ()) if registry == "npm" else _pypi_name(rest)


def _npm_name(name: str) -> str:
    if _NPM_NAME.match(name) and len(name) <= _NPM_LONGEST and name not in _NPM_REFUSED:
        return name
    bare, at, _ = name.rpartition("@")
    if at and bare and _NPM_NAME.match(bare):
        raise Bad(
            "bad-package", "a package's name carries no version and no address", f"write: npm:{bare}, and `version:`"
        )
    if len(name) > _NPM_LONGEST:
        raise Bad("bad-package", f"an npm name has at most {_NPM_LONGEST} characters; this has {len(name)}")
    if name != name.lower() and _NPM_NAME.match(name.lower()):
        raise Bad("bad-package", "an npm name is lower-case", f"write: npm:{name.lower()}")
    raise Bad("bad-package", "this is no name of an npm package", "write: npm:NAME or npm:@SCOPE/NAME")


def _pypi_name(text: str) -> tuple[Registry, str, tuple[str, ...]]:
    found = _PYPI.match(text)
    if not found:
        bare = re.match(rf"{PYPI_NAME}", text)
        if bare and re.match(r"\s*(?:==|>=|<=|~=|!=|@|<|>|;)", text[bare.end() :]):
            hint = f"write: pypi:{bare[0]}, and `version:`"
            raise Bad("bad-package", "a package's name carries no version and no address", hint)
        raise Bad("bad-package", "this is no name of a PyPI package", "write: pypi:NAME or pypi:NAME[EXTRA]")
    extras = [e.strip() for e in found[3].split(",")] if found[3] is not None else []
    if any(not _PYPI_NAME.match(e) for e in extras):
        raise Bad(
            "bad-package", "the extras in [ ] are names with commas between them", f"write: pypi:{found[1]}[extra]"
        )
    return "pypi", _normal(found[1]), tuple(sorted({_normal(e) for e in extras}))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def newest(registry: Registry, name: str) -> str:
    """What a user types to see a package's newest version."""
    return f"npm view {name} version" if registry == "npm" else f"pip index versions {name}"


@lru_cache(maxsize=4096)
def parse_version(registry: Registry, name: str, text: str) -> str:
    """An exact version of a package, in the registry's own spelling; a range or a tag is refused by name."""
    if len(text) > _LONGEST_VERSION:
        raise Bad("bad-version", f"a version has at most {_LONGEST_VERSION} characters; this has {len(text)}")
    if registry == "npm" and _SEMVER.match(text):
        return text
    exact = _pep440(text) if registry == "pypi" and text.isascii() else None
    if exact is not None:
        return exact
    raise _inexact(registry, name, text)


def _pep440(text: str) -> str | None:
    from packaging.version import InvalidVersion, Version

    if text != text.strip():
        return None
    try:
        return str(Version(text))
    except InvalidVersion:
        return None


def _inexact(registry: Registry, name: str, text: str) -> Bad:
    hint = f"look the newest one up and write it out: {newest(registry, name)}"
    if _TAG.match(text):
        return Bad("version-tag", f"`{shown(text)}` is a tag, and tags move; a version is exact", hint)
    if re.match(r"[v=]", text) and _SEMVER.match(text[1:]):
        return Bad("bad-version", "a version is written without `v` or `=`", f"write: {text[1:]}")
    if registry == "npm" and "+" in text and _SEMVER.match(text.split("+", 1)[0]):
        return Bad("bad-version", "a version in npm has no build part", f"write: {text.split('+', 1)[0]}")
    if _RANGE.search(text):
        return Bad("version-range", f"`{shown(text)}` is a range; a version is exact", hint)
    form = "SemVer, as 2026.8.31" if registry == "npm" else "PEP 440, as 2026.8.31"
    return Bad("bad-version", f"this is no exact version ({form})", hint)


def package(name: str, version: str) -> Package:
    """An exact package of two texts that were checked."""
    registry, bare, extras = parse_name(name)
    return Package(registry, bare, parse_version(registry, bare, version), extras)
