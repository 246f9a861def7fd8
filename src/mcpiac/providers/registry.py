"""The providers by name: their abilities as data, and a connection. The only place that knows them all.

What speaks HTTP is imported on connecting: asking for abilities costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, error
from mcpiac.model.traits import Traits

if TYPE_CHECKING:
    from mcpiac.providers.base import WireProvider

_TRAITS: Mapping[str, Traits] = {
    "local": Traits(
        provider="local",
        guest="agent",
        package_store=True,
        lists_hosted=True,
        lists_idle=True,
        lists_owner=True,
        loopback_only_network=True,
    ),
    "sandboxer": Traits(
        provider="sandboxer",
        guest="systemd",
        package_store=False,
        lists_hosted=False,
        lists_idle=False,
        lists_owner=False,
        egress=frozenset({"all"}),
    ),
}

NAMES: tuple[str, ...] = tuple(_TRAITS)


def traits(name: str, environ: Mapping[str, str] | None = None) -> Traits:
    """What a provider can do here and now. Asks no service and starts no program. Raises ``Diagnosed``."""
    found = _TRAITS.get(name)
    if found is None:
        raise _unknown(name)
    if name == "sandboxer":
        from mcpiac.providers.sbx import find

        return replace(found, idle_settable=find(os.environ if environ is None else environ) is not None)
    return found


def connect(
    name: str,
    *,
    environ: Mapping[str, str],
    config: Mapping[str, Any] | None = None,
    start_daemon: bool = True,
) -> WireProvider:
    """A connection, as an async context manager. ``config`` is this provider's part of the user's config.

    ``local``: the daemon is started on entering where it does not run (``start_daemon``). Raises ``Diagnosed``.
    """
    able = traits(name, environ)
    if name == "local":
        from mcpiac.providers import local

        return local.connect(able, environ, start_daemon=start_daemon)
    from mcpiac.providers import sandboxer

    return sandboxer.connect(able, environ, config or {})


def notices(name: str) -> tuple[Diagnostic, ...]:
    """What a user of this provider is told once per run."""
    if name != "sandboxer":
        return ()
    from mcpiac.providers.sandboxer import BETA

    return (BETA,)


def _unknown(name: str) -> Diagnosed:
    return error("unknown-provider", f"`{name}` is no provider", hint=f"write one of: {', '.join(NAMES)}")
