"""Why a package could not be had: one exception with stable codes, made from what npm and uv say.

Codes, all documented in ``docs/packages.md``: see ``CODES``.
"""

from __future__ import annotations

import configparser
import contextlib
import difflib
import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping

CODES = (
    "package_not_found",
    "version_not_found",
    "registry_unreachable",
    "registry_unauthorised",
    "integrity_mismatch",
    "disk_full",
    "needs_build",
    "build_failed",
    "host_refused",
    "host_unresolved",
    "runtime_too_old",
    "bad_metadata",
    "no_program",
    "ambiguous_program",
    "bad_tree",
    "no_installer",
    "install_timeout",
    "install_failed",
)

KNOWN = {
    "npm": (
        "@modelcontextprotocol/server-everything",
        "@modelcontextprotocol/server-filesystem",
        "@modelcontextprotocol/server-memory",
        "@modelcontextprotocol/server-sequential-thinking",
        "mcp-proxy",
        "supergateway",
    ),
    "pypi": ("mcp-proxy", "mcp-server-fetch", "mcp-server-git", "mcp-server-time"),
}
"""The reference servers and the bridges: what a mistyped name is compared with, since not every registry searches."""

_UNREACHABLE = frozenset(
    """ECONNREFUSED ECONNRESET ENOTFOUND EAI_AGAIN ETIMEDOUT ERR_SOCKET_TIMEOUT EHOSTUNREACH ENETUNREACH EPIPE
    CERT_HAS_EXPIRED DEPTH_ZERO_SELF_SIGNED_CERT SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    UNABLE_TO_VERIFY_LEAF_SIGNATURE ERR_TLS_CERT_ALTNAME_INVALID ENOTCACHED""".split()  # noqa: SIM905
)


class PackageError(Exception):
    """``message`` is one line; ``hint`` what to do; ``output`` the last lines of the program that failed."""

    def __init__(self, code: str, message: str, *, hint: str = "", output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.output = output

    def details(self) -> dict[str, str]:
        """For the ``details`` of an error answer."""
        return {key: value for key, value in (("hint", self.hint), ("output", self.output)) if value}


@contextlib.contextmanager
def reading(package: str) -> Iterator[None]:
    """What a package says about itself may be anything: whatever fails while it is read is its fault."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OSError, configparser.Error) as failure:
        if isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        why = str(failure).partition("\n")[0]
        raise PackageError("bad_metadata", f"what {package} says about itself cannot be read: {why}") from failure


def nearest(name: str, among: Iterable[str]) -> tuple[str, ...]:
    """The one of ``among`` that looks most like ``name``, and others only when they look nearly as much like it."""
    found = difflib.get_close_matches(name, list(among), n=3, cutoff=0.75)
    return tuple(found[:1] + [each for each in found[1:] if difflib.SequenceMatcher(None, each, name).ratio() > 0.92])


def nearest_versions(version: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Up to three versions like ``version``, and the last of the list, which is the newest."""
    listed = list(versions)
    found = difflib.get_close_matches(version, listed, n=3, cutoff=0.5)
    return tuple(dict.fromkeys([*found, *listed[-1:]]))


_NOISE = ("npm http ", "npm error Log files were not written")


def redacted(text: str) -> str:
    """Output of a package manager without the credentials of URLs."""
    return re.sub(r"(https?://)[^/\s@]+@", r"\1***@", text)


def from_npm(package: str, stdout: str, stderr: str) -> PackageError:
    """By the ``code`` of npm's ``--json`` error."""
    found: Mapping[str, str] = {}
    start = stdout.find("{")
    if start >= 0:
        try:
            found = json.loads(stdout[start:]).get("error") or {}
        except ValueError:
            found = {}
    code, said = str(found.get("code", "")), redacted(str(found.get("summary", "")))
    output = redacted(_tail(stderr))
    if code in ("E404", "ENOVERSIONS"):
        return PackageError("package_not_found", f"the package {package} does not exist: {said}", output=output)
    if code == "ETARGET":
        return PackageError("version_not_found", f"the package {package} has no such version: {said}", output=output)
    if code in ("E401", "E403", "ENEEDAUTH"):
        hint = "check the registry and its token in your npm configuration (`npm config ls`)"
        return PackageError("registry_unauthorised", f"the registry refused {package}: {said}", hint=hint)
    if code == "EINTEGRITY":
        return PackageError("integrity_mismatch", f"{package}: {said}", output=output)
    if code == "ENOSPC":
        return PackageError("disk_full", f"no space left while installing {package}", output=output)
    if code == "EBADENGINE":
        return PackageError("runtime_too_old", f"{package}: {said}", output=output)
    if code in _UNREACHABLE or code.startswith("E5") or "network" in said.lower():
        hint = "check the network and the registry, proxy and cafile of your npm configuration (`npm config ls`)"
        return PackageError("registry_unreachable", f"the npm registry does not answer: {said}", hint=hint)
    if code in ("ENOENT", "EALLOWGIT") and "git" in said.lower():
        return PackageError("needs_build", f"{package} needs a dependency from git, which is not fetched: {said}")
    said = said or (output.splitlines() or ["it ended without a word"])[-1]
    return PackageError("install_failed", f"npm could not install {package}: {said}", output=output)


def from_uv(package: str, stderr: str) -> PackageError:
    """By the words of uv's error, which has no codes."""
    text = " ".join(redacted(stderr).split())
    output = redacted(_tail(stderr))
    cause = text.partition("cause: ")[2].partition(", we can conclude")[0] or text.removeprefix("error: ")
    cause = cause.removeprefix("Because ")[:300]
    if "No space left" in text:
        return PackageError("disk_full", f"no space left while installing {package}", output=output)
    if "hash mismatch" in text.lower():
        return PackageError("integrity_mismatch", f"{package}: {cause}", output=output)
    if re.search(r"\b(401 Unauthorized|403 Forbidden)\b", text):
        hint = "check the index URL and its login in your pip or uv configuration"
        return PackageError("registry_unauthorised", f"the index refused {package}", hint=hint, output=output)
    if "Failed to fetch" in text or "Failed to download" in text or "offline" in text.lower():
        hint = "check the network and the index-url, proxy and cert of your pip or uv configuration"
        why = text.rpartition("cause: ")[2][:200]
        said = f"the registry (PyPI index) does not answer: {why}"
        return PackageError("registry_unreachable", said, hint=hint, output=output)
    if "does not satisfy Python" in text:
        return PackageError("runtime_too_old", f"{package} needs another Python: {cause}", output=output)
    if (
        "no usable wheels" in text
        or "no wheels with a matching" in text
        or "building from source is disabled" in text
    ):
        hint = "only wheels are installed: a source distribution runs its code to be built"
        return PackageError(
            "needs_build", f"{package} has no wheel for this machine: {cause}", hint=hint, output=output
        )
    if "was not found in" in text:
        return PackageError("package_not_found", f"the package {package} does not exist: {cause}", output=output)
    if "there is no version of" in text or "there are no versions of" in text:
        return PackageError("version_not_found", f"the package {package} has no such version: {cause}", output=output)
    return PackageError("install_failed", f"uv could not install {package}: {cause}", output=output)


def _tail(text: str) -> str:
    """The last lines that say something: not npm's one per request, nor that it keeps no log."""
    lines = [line for line in text.strip().splitlines() if not line.startswith(_NOISE)]
    return "\n".join(lines[-15:])[-4000:]
