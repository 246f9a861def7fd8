"""Does a text look like a secret? By its own shape, or by the name that it stands under. Pure.

The shapes are the published token formats of the services named; the rest is judged by length, mix of characters and
Shannon entropy. A false alarm costs the user one line of ``allow_plain``; a miss puts a secret into a plan.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mcpiac.stack.grammar import VARIABLE

MASK = "••••"
"""What is shown in a secret's place: the same for every length."""

_SHAPES = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
    r"|\b(?:sk|pk|rk)[-_](?:ant|live|test|proj|or|svcacct)[-_][A-Za-z0-9_-]{8,200}"
    r"|\bsk-[A-Za-z0-9_-]{16,200}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,200}|\bgithub_pat_[A-Za-z0-9_]{20,200}"
    r"|\bgl(?:pat|ptt|dt|rt|soat)-[A-Za-z0-9_-]{16,200}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,200}|\bxapp-[A-Za-z0-9-]{10,200}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,200}|\bya29\.[A-Za-z0-9_-]{20,200}"
    r"|\beyJ[A-Za-z0-9_-]{8,200}\.eyJ[A-Za-z0-9_-]{8,200}"
    r"|\bnpm_[A-Za-z0-9]{30,200}|\bpypi-[A-Za-z0-9_-]{30,200}|\bhf_[A-Za-z0-9]{20,200}"
    r"|\bSG\.[A-Za-z0-9_-]{16,200}\.[A-Za-z0-9_-]{16,200}"
    r"|\bdop_v1_[a-f0-9]{32,200}|\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{24,200}|\bsq0[a-z]{3}-[A-Za-z0-9_-]{20,200}"
    r"|\bAGE-SECRET-KEY-1[A-Z0-9]{20,200}|\bdckr_pat_[A-Za-z0-9_-]{20,200}|\bhvs\.[A-Za-z0-9_-]{20,200}"
    r"|\blin_api_[A-Za-z0-9]{20,200}|\bsecret_[A-Za-z0-9]{30,200}|\bntn_[A-Za-z0-9]{30,200}|\bfigd_[A-Za-z0-9_-]{20,200}"
    r"|\bsbp_[a-f0-9]{30,200}|\bwhsec_[A-Za-z0-9+/=]{20,200}"
    r"|(?i:\bbearer {1,8}[A-Za-z0-9._~+/=-]{12,200})"
    r"|\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@]{0,200}:[^\s/@$]{1,200}@"
)
"""Every repetition is bounded: a text made to be slow is read in a time that grows with its length only."""

_NAME = re.compile(
    r"(?:^|[_.-])(?:tokens?|secrets?|passw(?:or)?d|passphrase|pass|pwd|api_?key|apikey|access_?key|secret_?key|private_?key"
    r"|encryption_?key|signing_?key|service_?key|master_?key|license_?key"
    r"|auth_?key|credentials?|authorization|cookie|bearer)$",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(?:^|[_-])(?:max|min|num|limit|count)(?:[_-]|$)", re.IGNORECASE)
_SPLIT_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")

_VARIABLE = re.compile(VARIABLE + r"\Z")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)\Z")
_ASSIGNED = re.compile(r"(?:--?)?([A-Za-z_][A-Za-z0-9_-]*)=(.*)\Z", re.DOTALL)

_HARMLESS = re.compile(r"(?:\$\{secret\.[^}]*\}|true|false|yes|no|on|off|none|null|\s*)\Z", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{secret\.[A-Za-z_][A-Za-z0-9_]*\}")

_RUN = re.compile(r"[A-Za-z0-9+]{24,}={0,2}")
_LONG_RUN = re.compile(r"[A-Za-z0-9+_-]{32,}={0,2}")
_HEX = re.compile(
    r"(?<![A-Za-z0-9:_-])[0-9a-f]{32,}(?![A-Za-z0-9_-])|(?<![A-Za-z0-9:_-])[0-9A-F]{32,}(?![A-Za-z0-9_-])"
)
_BITS_RUN, _BITS_LONG_RUN = 3.9, 4.3
"""Bits a character: random base64 of 24 has about 4.2; English, paths and dotted names stay below 3.9."""


def secret_name(name: str) -> bool:
    """Whether a variable, flag or key of this name usually holds a secret."""
    name = _SPLIT_WORDS.sub("_", name)
    return _NAME.search(name) is not None and _COUNTED.search(name) is None


@lru_cache(maxsize=4096)
def secret_value(value: str) -> bool:
    """Whether the text itself has the shape of a secret."""
    if len(value) < 12:
        return False
    if _SHAPES.search(value):
        return True
    if len(value) < 24:
        return False
    if any(_hexadecimal(run) for run in _HEX.findall(value)):
        return True
    return _dense(_RUN, value, _BITS_RUN) or _dense(_LONG_RUN, value, _BITS_LONG_RUN)


def shaped(value: str) -> bool:
    """Only the published token formats: what is sure enough to speak of a file's content."""
    return _SHAPES.search(value) is not None


def held_under(name: str, value: str) -> bool:
    """Whether ``value`` under ``name`` (a variable's) looks like a secret."""
    return secret_value(value) or (secret_name(name) and not harmless(value))


def harmless(value: str) -> bool:
    """What a variable with a secret's name may hold: nothing, a switch, or a reference to a secret."""
    return _HARMLESS.match(value) is not None or _REFERENCE.search(value) is not None


def suspicious_arguments(argv: Sequence[str]) -> list[int]:
    """Positions of an argv that look like secrets: by shape, as ``--token=…``, or after ``--token``."""
    found = []
    awaited = False
    for index, item in enumerate(argv):
        assigned = _ASSIGNED.match(item)
        if (
            secret_value(item)
            or (assigned and held_under(assigned[1], assigned[2]))
            or (awaited and not item.startswith("-") and not harmless(item))
        ):
            found.append(index)
        flag = _FLAG.match(item)
        awaited = flag is not None and secret_name(flag[1])
    return found


def scrub(text: str) -> str:
    """A text without what has the shape of a secret, for quoting; from a published token format on, all is cut."""
    found = _SHAPES.search(text)
    if found:
        text = text[: found.start()] + MASK
    text = _HEX.sub(lambda run: MASK if _hexadecimal(run[0]) else run[0], text)
    for pattern, bits in ((_RUN, _BITS_RUN), (_LONG_RUN, _BITS_LONG_RUN)):
        text = pattern.sub(lambda run, bits=bits: MASK if _is_dense(run[0], bits) else run[0], text)  # type: ignore[misc]
    return text


def _hexadecimal(run: str) -> bool:
    """Random, rather than a long number."""
    return _mixed(run) and any(c in "abcdef" for c in run.lower())


def _is_dense(run: str, bits: float) -> bool:
    return _mixed(run) and _entropy(run) >= bits


def _dense(pattern: re.Pattern[str], value: str, bits: float) -> bool:
    return any(_is_dense(run, bits) for run in pattern.findall(value))


def _mixed(run: str) -> bool:
    letters = any(c.isalpha() for c in run)
    digits = any(c.isdigit() for c in run)
    if not (letters and digits):
        return False
    return (
        run.lower() == run or run.upper() == run or (any(c.islower() for c in run) and any(c.isupper() for c in run))
    )


def _entropy(text: str) -> float:
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())


def shown(value: Any, longest: int = 60) -> str:
    """A value as a message may quote it: masked where it looks like a secret, cut where it is long."""
    text = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    text = text if isinstance(text, str) else str(text)
    if secret_value(text):
        return MASK
    text = scrub(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def name_shown(name: str) -> bool:
    """Whether a variable's name is one, and may be quoted in what a user is told to write."""
    return _VARIABLE.match(name) is not None and shown(name) == name
