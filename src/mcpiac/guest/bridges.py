"""The bridges that a server can be put behind: where each comes from, its pinned version, its command line.

A command line is a list of *words* that the set-up program in the guest turns into the final argv: a template
(``program/words.py``), ``{"entry": role}`` (the argv of a package as it lies in the guest) or ``{"shell": words}``
(the words as one text for a POSIX shell). Flags are those of each program's own ``--help`` at the pinned version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcpiac.model.diagnostic import error
from mcpiac.model.spec import Bridge, BridgeName, Package, Registry

Word = str | dict[str, Any]

DEFAULT: BridgeName = "mcpiac"
BUNDLED = "bundled"
"""The version of the bridge that ships with this mcpiac."""

PROGRAM = "/home/user/.mcpiac/mcpiac-bridge.pyz"
LONGEST_TIMER_MS = 2**31 - 1
"""Node's longest timer, 24.8 days. A session timer keeps counting while a sandbox is paused, so it must outlast
any pause; a larger number would fire at once (Node's documentation of ``setTimeout``)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a bridge comes from. ``fixed_path``: the only path that it can serve."""

    version: str
    registry: Registry | None = None
    package: str = ""
    fixed_path: str | None = None


KINDS: Mapping[str, Kind] = {
    "mcpiac": Kind(BUNDLED),
    "supergateway": Kind("4.0.0", "npm", "supergateway"),
    "npm:mcp-proxy": Kind("6.7.19", "npm", "mcp-proxy"),
    "pypi:mcp-proxy": Kind("0.13.0", "pypi", "mcp-proxy", fixed_path="/mcp"),
}


def resolve(name: str | None = None, version: str | None = None) -> Bridge:
    """A bridge with its exact version: what is not given is this mcpiac's own choice. Raises ``KeyError``."""
    chosen = cast(BridgeName, name or DEFAULT)
    return Bridge(chosen, version or KINDS[chosen].version)


def package(bridge: Bridge | None) -> Package | None:
    """The package of a resolved bridge that comes from a registry."""
    if bridge is None:
        return None
    kind = KINDS[bridge.name]
    if kind.registry is None:
        return None
    return Package(kind.registry, kind.package, bridge.version or kind.version)


def words(bridge: Bridge, server: Sequence[Word], *, port: int, path: str, host: str) -> list[Word]:
    """The command line of ``bridge`` around the command line of a server.

    ``host`` is the address to listen on; the ``mcpiac`` bridge knows loopback only. Raises ``Diagnosed``.
    """
    fixed = KINDS[bridge.name].fixed_path
    if fixed is not None and path != fixed:
        raise error(
            "bridge-fixed-path",
            f"the bridge {bridge.name} serves {fixed} only, and the stack asks for {path}",
            hint=f"remove `path`, or choose another bridge than {bridge.name}",
        )
    entry: Word = {"entry": "bridge"}
    at = str(port)
    match bridge.name:
        case "mcpiac":
            return ["python3", "-I", PROGRAM, "--port", at, "--path", path, "--", *server]
        case "supergateway":
            return [
                *(entry, "--stdio", {"shell": list(server)}, "--outputTransport", "streamableHttp"),
                *("--host", host, "--port", at, "--streamableHttpPath", path),
                *("--stateful", "--sessionTimeout", str(LONGEST_TIMER_MS), "--logLevel", "none"),
            ]
        case "npm:mcp-proxy":
            return [
                *(entry, "--host", host, "--port", at, "--server", "stream", "--streamEndpoint", path),
                *("--sessionIdleTimeout", "0", "--requestTimeout", "3600000", "--", *server),
            ]
        case "pypi:mcp-proxy":
            return [
                *(entry, "--host", host, "--port", at, "--pass-environment", "--log-level", "WARNING"),
                *("--", *server),
            ]
