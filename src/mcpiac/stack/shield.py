"""What the C parser would misread is kept from it, character for character."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_COLON = re.compile(r"([\"'\]}][ \t]*)?:(?=[^\s,\[\]{}])")
_QUESTION = re.compile(r"(?<=[^\s\[{,])\?|\?(?=\S)")
_PRIVATE_USE = range(0xE000, 0xF900)


@dataclass(frozen=True, slots=True)
class Shield:
    """The bundled libyaml is 0.1.7, which refuses ``{A: env:A}`` and ``[https://a/?b]``: it takes any ``:`` and ``?``
    in a flow collection for an indicator. By YAML 1.2 they are plain text there unless a blank follows (``:``, and
    after a quoted key always an indicator) or stands on both sides (``?``).

    So those that are text are replaced by a character of the private use area that the text does not hold, one for
    one, which keeps every position, and put back in every scalar.
    """

    text: str
    colon: str
    question: str

    @classmethod
    def over(cls, text: str) -> Shield:
        if "{" not in text and "[" not in text:
            return cls(text, "", "")
        free = (chr(c) for c in _PRIVATE_USE if chr(c) not in text)
        colon, question = next(free, ""), next(free, "")
        if not question:
            return cls(text, "", "")
        made = _COLON.sub(lambda m: m[0] if m[1] else colon, text)
        return cls(_QUESTION.sub(question, made) if "?" in made else made, colon, question)

    @property
    def pattern(self) -> Callable[[str], object] | None:
        """Finds what was replaced; None where nothing was."""
        return re.compile(f"[{self.colon}{self.question}]").search if self.colon else None

    def open(self, text: str) -> str:
        """A scalar's text as it was written."""
        return text.replace(self.colon, ":").replace(self.question, "?") if self.colon else text
