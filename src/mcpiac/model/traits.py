"""What a provider can do, as data: the planner decides by these, never by a provider's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traits:
    """The abilities of one provider.

    ``lists_*``: the list call carries this, so that drift in it can be seen. ``in_place``: sandbox inputs that
    change without a stop (of ``size``, ``secrets``, ``egress``). ``replace_on``: fields whose change needs a new
    sandbox. ``egress``: the kinds that it can enforce. ``package_store``: packages are installed by the
    provider and mounted, rather than by the guest's set-up. ``idle_settable``: whether idle can be set at all now.
    """

    provider: str
    guest: str
    package_store: bool
    lists_hosted: bool
    lists_idle: bool
    lists_owner: bool
    idle_settable: bool = True
    in_place: frozenset[str] = frozenset()
    replace_on: frozenset[str] = frozenset()
    egress: frozenset[str] = frozenset({"none"})
    mounts: bool = False
    loopback_only_network: bool = False
