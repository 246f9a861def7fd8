"""Takes credentials out of texts that may be shown: what the service says may quote what it was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mcpiac.model.secret import Secret

MASK = "••••"
_TOKEN = re.compile(r"(_token=|__sbx_auth=|[Bb]earer\s+)[^\s&\"'<>;,]+")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without URL tokens, cookies, bearer keys and the given values."""
    for value in secrets:
        if value:
            text = text.replace(value, MASK)
    return _TOKEN.sub(rf"\g<1>{MASK}", text)


def split_token(url: str) -> tuple[str, Secret | None]:
    """A hosted URL as (URL without its token and without a last slash, token)."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    token = next((value for name, value in query if name == "_token"), None)
    rest = urlencode([pair for pair in query if pair[0] != "_token"])
    clean = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), rest, ""))
    return clean, None if token is None else Secret(token)
