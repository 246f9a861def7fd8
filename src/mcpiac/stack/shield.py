"""What the C parser would misread is kept from it, character for character."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_COLON = re.compile(r"([\"'\]}][ \t]*)?:(?=[^\s,\[\]{}])")
_QUESTION = re.compile(r"(?<=[^\s\[{,])\?|\?(?=\S)")
_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(frozen=True, slots=True)
class Shield:
    """The libyaml in ruamel.yaml's C part is 0.1.7, which refuses ``{A: env:A}`` and ``[https://a/?b]``: it takes any
    ``:`` and ``?`` in a flow collection for an indicator. By YAML 1.2 they are plain text there unless a blank
    follows (``:``; after a quoted key it is always an indicator) or stands on both sides (``?``).

    So those that are text are replaced by characters of the private use area that the text does not hold, one for
    one, which keeps every position, and put back in every scalar.
    """

    text: str
    colon: str
    question: str

    @classmethod
    def over(cls, text: str) -> Shield:
        """The text as the parser gets it. A text that holds the whole private use area gets no shield."""
        free = (c for c in map(chr, _PRIVATE_USE) if c not in text)
        colon, question = next(free, ":"), next(free, "?")
        if question == "?" or not ("{" in text or "[" in text):
            return cls(text, colon, question)
        made = _COLON.sub(lambda m: m[0] if m[1] else colon, text) if ":" in text else text
        return cls(_QUESTION.sub(question, made) if "?" in made else made, colon, question)

    def open(self, event: Any) -> str:
        """Put back what a scalar event holds; its text as it was written."""
        text: str = event.value
        if self.colon in text or self.question in text:
            text = event.value = text.replace(self.colon, ":").replace(self.question, "?")
        return text
