"""Templates and words become argv, and argv becomes text for an agent or for a shell, byte for byte.

Templates: ``${secret.NAME}`` is that variable of the sandbox's environment, ``${port}`` the port, ``$${`` a literal
``${``. Secrets stay names here: whatever starts the server puts them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .fault import Failed

TEMPLATE = re.compile(r"\$\$\{|\$\{secret\.([A-Za-z_][A-Za-z0-9_]*)\}|\$\{port\}")

Pieces = list[list[str]]
"""A text as ``[kind, text]`` pairs, kind ``text`` or ``secret``."""


def parts(text: str, port: int) -> Pieces:
    """A template as pieces, neighbouring texts joined."""
    pieces: Pieces = []
    at = 0
    for match in TEMPLATE.finditer(text):
        _add(pieces, "text", text[at : match.start()])
        if match.group(1):
            _add(pieces, "secret", match.group(1))
        else:
            _add(pieces, "text", "${" if match.group(0) == "$${" else str(port))
        at = match.end()
    _add(pieces, "text", text[at:])
    return pieces or [["text", ""]]


def _add(pieces: Pieces, kind: str, piece: str) -> None:
    if kind == "text" and pieces and pieces[-1][0] == "text":
        pieces[-1][1] += piece
    elif piece:
        pieces.append([kind, piece])


def literal(pieces: Pieces) -> str:
    """The text of pieces without secrets."""
    return "".join(piece for kind, piece in pieces if kind == "text")


def for_agent(pieces: Pieces) -> str:
    """Pieces as the local agent's template text, which knows ``${secret.NAME}`` and ``$${``."""
    return "".join(
        f"${{secret.{piece}}}" if kind == "secret" else piece.replace("${", "$${") for kind, piece in pieces
    )


def for_shell(pieces: Pieces) -> str:
    """Pieces as one word for a POSIX shell; a secret is that shell's own variable, quoted."""
    return "".join(f'"${piece}"' if kind == "secret" else _quoted(piece) for kind, piece in pieces)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def expand(words: Sequence[Any], packages: Sequence[Mapping[str, Any]], port: int) -> list[Pieces]:
    """Words as argv.

    A word is a template, ``{"entry": role}`` (the argv of that package, behind ``env`` where it needs variables), or
    ``{"shell": words}`` (all of them as one text for a shell).
    """
    argv: list[Pieces] = []
    for word in words:
        if isinstance(word, str):
            argv.append(parts(word, port))
        elif "shell" in word:
            inner = expand(word["shell"], packages, port)
            argv.append([["text", " ".join(for_shell(item) for item in inner)]])
        else:
            package = next(p for p in packages if word["entry"] in p["roles"])
            if not package.get("entry"):
                raise Failed("entry-not-found", f"{package['name']} {package['version']} has no program to start")
            if package.get("env"):
                argv.append([["text", "/usr/bin/env"]])
                argv += [[["text", f"{name}={value}"]] for name, value in sorted(package["env"].items())]
            argv += [[["text", item]] for item in package["entry"]]
    return argv
