"""No secret and no URL token leaves a run: every text from outside passes here before it is shown or recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from mcpiac.model.secret import Secret

MASK = "••••"
SHORTEST = 4
"""Values below this length are no secrets that a mask could keep: taking them out would only spoil the text."""


class Redactor:
    """Knows every secret of a run, in the forms in which programs print them: raw, JSON, URL, base64, by line."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._forms: set[str] = set()
        self._ordered: list[str] = []
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: Secret | None) -> None:
        """One more to keep: a token that was just asked for."""
        if secret is None:
            return
        new = set(_forms(secret.reveal())) - self._forms
        if new:
            self._forms |= new
            self._ordered = sorted(self._forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """``text`` without any of them."""
        for form in self._ordered:
            if form in text:
                text = text.replace(form, MASK)
        return text


def _forms(value: str) -> Iterable[str]:
    if len(value) < SHORTEST:
        return
    lines = [line for line in value.splitlines() if len(line) >= 2 * SHORTEST]
    for one in {value, value.strip(), *lines}:
        if len(one) < SHORTEST:
            continue
        yield one
        yield json.dumps(one)[1:-1]
        yield json.dumps(one, ensure_ascii=False)[1:-1]
        yield quote(one, safe="", errors="surrogatepass")
        yield quote(one, errors="surrogatepass")
        yield quote_plus(one, errors="surrogatepass")
        yield from _base64(one.encode("utf-8", "surrogatepass"))


def _base64(data: bytes) -> Iterable[str]:
    """As it stands in base64, of a longer text too: at each of three offsets, without ends that others share."""
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + data).decode()
        start = (0, 2, 3)[offset]
        end = len(text) if (offset + len(data)) % 3 == 0 else len(text.rstrip("=")) - 1
        if end - start >= 2 * SHORTEST:
            yield text[start:end]
            yield text[start:end].replace("+", "-").replace("/", "_")
