"""Numbers, times and counts in the words that every output uses."""

from __future__ import annotations

from datetime import UTC, datetime


def span(seconds: float) -> str:
    """A length of time, one or two units: ``0.09 s``, ``6.3 s``, ``12 min``, ``3 h``, ``2 d 4 h``."""
    if seconds < 0.1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"


def ttl(seconds: int | None) -> str:
    """A TTL as a stack file writes it: ``8h``, ``90s``, ``none``."""
    if seconds is None:
        return "none"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(text: str) -> datetime | None:
    """An ISO 8601 time in UTC, or None if it is none."""
    try:
        read = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 server``, ``3 servers``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1] if names else ""
