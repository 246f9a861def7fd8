"""Declared secrets against the traces of those that a sandbox was given: never a value, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcpiac.model.record import Fingerprint
from mcpiac.model.spec import SecretRef

Current = Mapping[str, Fingerprint | None]
"""NAME → the trace of the value that its source has now; None: the source has none (unset). A missing name: no key
to make a trace with, or nothing was resolved."""


@dataclass(frozen=True, slots=True)
class SecretDiff:
    """``changed``: names whose value must be sent (added and removed ones too), with why. ``moved``: only where they
    come from differs, the value is the same. ``unknown``: not compared. ``unset``: without a value now."""

    changed: Mapping[str, str]
    moved: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


NOTHING = SecretDiff({})


def compare(
    declared: Mapping[str, SecretRef],
    recorded: Mapping[str, Any] | None,
    sent: Mapping[str, Fingerprint],
    current: Current | None,
) -> SecretDiff:
    """What differs.

    ``recorded`` is the recorded view of ``secrets`` (None: never sent), ``sent`` the traces in the sandbox's record,
    ``current`` None when nothing was resolved. The user's own ``version`` decides before any trace. Where values
    cannot be compared, another source counts as another value: that much is declared.
    """
    unset = tuple(name for name in declared if current and name in current and current[name] is None)
    if recorded is None:
        return SecretDiff(dict.fromkeys(declared, "not sent yet"), unset=unset)
    changed = {name: "no longer declared" for name in recorded if name not in declared}
    moved: list[str] = []
    unknown: list[str] = []
    for name, ref in declared.items():
        old = recorded.get(name)
        if old is None:
            changed[name] = "new"
            continue
        if old["version"] != ref.version:
            changed[name] = "version changed"
            continue
        same = _same(sent.get(name), (current or {}).get(name))
        if same is False:
            changed[name] = "changed"
        elif same is None and old["source"] != ref.source:
            changed[name] = "comes from elsewhere"
        elif same is None:
            unknown.append(name)
        elif old["source"] != ref.source:
            moved.append(name)
    if not changed and not moved and not unknown and not unset:
        return NOTHING
    return SecretDiff(changed, tuple(moved), tuple(unknown), unset)


def _same(old: Fingerprint | None, new: Fingerprint | None) -> bool | None:
    if old is None or new is None or old.key_id != new.key_id:
        return None
    return old.mac == new.mac
