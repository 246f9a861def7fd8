"""The small languages inside a stack's texts: names, durations, guest paths, references, secret sources.

Each ``parse_*`` gives the value or raises ``Bad`` with what is wrong and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from mcpiac.model import destination
from mcpiac.model.spec import GUEST_ROOTS

NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
NAME_LONGEST = 40
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
RESERVED_PREFIX = "MCPIAC_"
RESERVED = frozenset(
    {
        "SANDBOXER_TOKEN",
        "SANDBOXER_API_URL",
        "AGENT_ID",
        "PRODUCT_MODE",
        "ENVIRONMENT_ID",
        "SANDBOXER_ID",
        "SERVICE_PREVIEW_TOKEN",
        "SANDBOXER_CLI_TOKEN",
    }
)
"""As ``mcpiac.wire.RESERVED_ENV`` (a test compares them): importing the wire costs ``validate`` 70 ms."""

MINUTE, HOUR, DAY = 60, 3600, 86400
TTL_SHORTEST, TTL_LONGEST = MINUTE, 365 * DAY
IDLE_SHORTEST, IDLE_LONGEST = 1, 10080
OWN_FOLDER = "/home/user/.mcpiac"
"""In the guest; ours."""

_NAME = re.compile(NAME + r"\Z")
_VARIABLE = re.compile(VARIABLE + r"\Z")
_DURATION = re.compile(r"([0-9]{1,9})([smhd])\Z")
_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_MODE = re.compile(r"0?[0-7]{3}\Z")
_URL_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+/?\Z|/\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_SOURCE = re.compile(r"([a-z][a-z0-9+-]{0,19}):(.*)\Z", re.DOTALL)
LATER_SOURCES = frozenset(
    {
        "cmd",
        "vault",
        "op",
        "aws",
        "awssm",
        "gcp",
        "gcpsm",
        "azure",
        "keyring",
        "keychain",
        "sops",
        "pass",
        "age",
        "bw",
        "doppler",
        "infisical",
    }
)


class Bad(Exception):
    """A text that its grammar refuses. ``hint``: what to write."""

    def __init__(self, code: str, summary: str, hint: str = "", detail: str = "") -> None:
        super().__init__(summary)
        self.code = code
        self.summary = summary
        self.hint = hint
        self.detail = detail


def check_name(name: str, what: str) -> str:
    """A stack's or a server's name."""
    if len(name) <= NAME_LONGEST and _NAME.match(name):
        return name
    suggested = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:NAME_LONGEST].rstrip("-")
    hint = f"write: {suggested}" if suggested else "for example: files"
    if len(name) > NAME_LONGEST:
        raise Bad(
            "bad-name", f"this name has {len(name)} characters; a {what}'s name has at most {NAME_LONGEST}", hint
        )
    why = "It begins with a lower-case letter; then come lower-case letters, digits, and single `-` between them."
    raise Bad("bad-name", f"this is no name for a {what}", hint, why)


def check_variable(name: str, where: str) -> str:
    """A name in ``env`` or ``secrets``."""
    if not _VARIABLE.match(name):
        hint = "letters, digits and _, not beginning with a digit, at most 128"
        raise Bad("bad-variable", "this is no name for an environment variable", hint)
    if name.startswith(RESERVED_PREFIX) or name in RESERVED:
        who = "mcpiac" if name.startswith(RESERVED_PREFIX) else "the sandbox service"
        raise Bad("reserved-name", f"{name} is set by {who}, and cannot stand under `{where}`", "use another name")
    return name


def parse_ttl(value: object) -> int | None:
    """Seconds until auto-stop; None for ``none``."""
    if value == "none":
        return None
    if value == "off":
        raise Bad("bad-duration", "`off` is for idle; a ttl is switched off with `none`", "write: none")
    seconds = _seconds(value, "90s, 30m, 8h, 2d, a number of seconds, or none")
    if seconds == 0:
        raise Bad("out-of-range", "a ttl of 0 would stop the sandbox at once", "to switch it off write: none")
    if not TTL_SHORTEST <= seconds <= TTL_LONGEST:
        raise Bad("out-of-range", "a ttl lies between 60 seconds and 365 days", "write 60 to 31536000, or none")
    return seconds


def parse_idle(value: object) -> int | None:
    """Minutes until auto-pause; None for ``off``."""
    if value == "off":
        return None
    if value == "none" or value is False:
        raise Bad("bad-duration", "auto-pause is switched off with `off`", "write: off")
    if isinstance(value, str):
        found = _DURATION.match(value)
        minutes = int(found[1]) * _UNITS[found[2]] // MINUTE if found else 0
        hint = f"write: {minutes}" if minutes else "write a number such as 15, or off"
        raise Bad("bad-duration", "idle is a whole number of minutes without a unit", hint)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Bad("bad-duration", "idle is a whole number of minutes", "write a number such as 15, or off")
    if value == 0:
        raise Bad("out-of-range", "idle is at least 1 minute", "to switch it off write: off")
    if not IDLE_SHORTEST <= value <= IDLE_LONGEST:
        raise Bad("out-of-range", "idle lies between 1 and 10080 minutes (a week)", "or write: off")
    return value


def parse_timeout(value: object) -> int:
    """Seconds that a step may take."""
    seconds = _seconds(value, "90s, 10m, 1h, or a number of seconds")
    if not 1 <= seconds <= DAY:
        raise Bad("out-of-range", "a timeout lies between 1 second and 1 day", "write: 5m")
    return seconds


def _seconds(value: object, forms: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        found = _DURATION.match(value)
        if found:
            return int(found[1]) * _UNITS[found[2]]
        if re.fullmatch(r"[0-9]{1,9}", value):
            raise Bad("bad-duration", "a number of seconds is written without quotes", f"write: {int(value)}")
    raise Bad("bad-duration", "this is no duration", f"write one of: {forms}")


def parse_mode(value: str) -> str:
    """A file's permission bits as four octal digits."""
    if not _MODE.match(value):
        raise Bad("bad-mode", "a mode is three octal digits after a 0", 'write for example: "0644"')
    return value.rjust(4, "0")


def check_guest_path(path: str) -> str:
    """Where a declared file lies in the guest."""
    roots = " or ".join(GUEST_ROOTS)
    if _CONTROL.search(path):
        raise Bad("bad-guest-path", "a path holds no control character", "")
    parts = path.split("/")
    if not path.startswith("/"):
        raise Bad("bad-guest-path", "a path in the guest begins with /", f"it lies under {roots}")
    if "" in parts[1:] or "." in parts or ".." in parts:
        raise Bad("bad-guest-path", "a path in the guest has no empty part, no `.` and no `..`", "write it out")
    if not any(path.startswith(root + "/") for root in GUEST_ROOTS):
        raise Bad(
            "bad-guest-path", f"a file in the guest lies under {roots}", f"for example: {GUEST_ROOTS[0]}/{parts[-1]}"
        )
    if path == OWN_FOLDER or path.startswith(OWN_FOLDER + "/"):
        raise Bad("bad-guest-path", f"{OWN_FOLDER} is mcpiac's own folder", "use another folder")
    if len(path) > 1024 or any(len(part.encode()) > 255 for part in parts):
        raise Bad("bad-guest-path", "this path is longer than a file system takes", "")
    return path


def check_url_path(path: str) -> str:
    """The path at which a server answers MCP."""
    if len(path) > 200 or not _URL_PATH.match(path) or ".." in path or "/./" in path:
        raise Bad("bad-url-path", "this is no path of a URL", "write for example: /mcp")
    return path


def parse_host(text: str) -> str:
    """``host[:port]`` in the one form that is compared and recorded: small letters, no port where it is 443."""
    try:
        return str(destination.parse(text))
    except destination.BadDestination as bad:
        raise Bad("bad-host", bad.summary, bad.hint) from None


def check_line(text: str, what: str, longest: int) -> str:
    """One line of text without control characters."""
    if _CONTROL.search(text):
        raise Bad("bad-text", f"a {what} is one line without control characters")
    if len(text) > longest:
        raise Bad("bad-text", f"a {what} has at most {longest} characters; this has {len(text)}")
    return text


def check_argument(text: str) -> str:
    """An item of an argv or a variable's value."""
    if "\x00" in text:
        raise Bad("bad-text", "a NUL character cannot be passed to a program")
    return text


def check_label(name: str) -> str:
    """The name of a label."""
    if not _LABEL.match(name):
        raise Bad("bad-label", "a label's name is 1 to 63 letters, digits and . _ - / between them")
    return name


def references(text: str) -> Iterator[str | None]:
    """What each ``${…}`` of a text names; None for one that is never closed. ``$${`` is none."""
    for found in _REFERENCE.finditer(text) if "${" in text else ():
        if found[1] is not None:
            yield found[1] if found[2] else None


def check_source(source: str) -> str:
    """Where a secret comes from. No message quotes it: it may be the secret itself."""
    found = _SOURCE.match(source)
    if found and found[1] == "env":
        if not _VARIABLE.match(found[2]):
            raise Bad("bad-source", "after `env:` comes the name of an environment variable", "write: env:NAME")
        return source
    if found and found[1] == "file":
        if not found[2].strip() or _CONTROL.search(found[2]):
            raise Bad("bad-source", "after `file:` comes a path", "write: file:PATH")
        return source
    if found and found[1] in LATER_SOURCES:
        _later(f"the secret source `{found[1]}:`", "use env:NAME or file:PATH")
    raise Bad(
        "literal-secret",
        "this holds a value, not a place to get it from",
        "put the value into the environment and write: env:NAME",
    )


def _later(what: str, hint: str) -> NoReturn:
    raise Bad("later-version", f"{what} comes with a later version of mcpiac", hint)
