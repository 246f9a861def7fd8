"""What a secret leaves in the state: a keyed digest that says "changed", and nothing else.

The key is 32 random bytes of the user's, outside every project and backend. Without it, or with another one, two
fingerprints cannot be compared, which means "not compared" and never "changed".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnosed, error
from mcpiac.model.record import Fingerprint
from mcpiac.model.secret import Secret

VARIABLE = "MCPIAC_FINGERPRINT_KEY"
FILE = "fingerprint.key"
SIZE = 32
"""Bytes."""

_LABEL = b"mcpiac fingerprint key id\x00"


@dataclass(frozen=True, slots=True)
class Key:
    """``id`` names the key (8 hex digits) and tells nothing of it."""

    id: str
    value: bytes = field(repr=False)


def key(create: bool, environ: Mapping[str, str] | None = None) -> Key | None:
    """The user's key; None where there is none and ``create`` is False.

    ``create`` writes a new one, whole or not at all: two runs at once end with the same key. Only an apply creates.
    Raises ``Diagnosed`` for a key that is there and unusable, or cannot be written.
    """
    environ = os.environ if environ is None else environ
    given = environ.get(VARIABLE)
    if given:
        return _key(_parse(given, f"the environment variable {VARIABLE}"))
    path = location(environ)
    held = _read(path)
    if held is None and create:
        held = _create(path)
    return None if held is None else _key(held)


def of(
    key: Key, lineage: str, address: Address | str, name: str, secret: Secret, version: int | None = None
) -> Fingerprint:
    """The fingerprint of a secret where it stands: HMAC-SHA256 over lineage, address, NAME and value.

    Each part is preceded by its length in bytes (8, big-endian), so that no two lists of parts give the same text.
    """
    parts = (lineage, str(address), name, secret.reveal())
    framed = b"".join(
        len(data).to_bytes(8, "big") + data for data in (p.encode("utf-8", "surrogatepass") for p in parts)
    )
    return Fingerprint(key.id, hmac.new(key.value, framed, hashlib.sha256).hexdigest(), version)


def location(environ: Mapping[str, str]) -> Path:
    """Where the key's file is: ``$XDG_CONFIG_HOME/mcpiac`` if absolute, else ``~/.config/mcpiac``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    home = environ.get("HOME") or str(Path.home())
    return (Path(base) if base.startswith("/") else Path(home) / ".config") / "mcpiac" / FILE


def _key(value: bytes) -> Key:
    return Key(hashlib.sha256(_LABEL + value).hexdigest()[:8], value)


def _parse(text: str, where: str) -> bytes:
    """32 bytes in hex or base64."""
    text = text.strip()
    value = b""
    try:
        value = bytes.fromhex(text) if len(text) == 2 * SIZE else b""
    except ValueError:
        value = b""
    if len(value) != SIZE:
        try:
            padded = text.replace("-", "+").replace("_", "/").rstrip("=")
            value = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
        except (ValueError, binascii.Error):
            value = b""
    if len(value) != SIZE:
        raise error(
            "fingerprint-key",
            f"{where} does not hold 32 bytes in hex or base64",
            hint=f"a new one: export {VARIABLE}=$(openssl rand -hex 32)",
        )
    return value


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise _unusable(path, os.strerror(fault.errno or 0), f"chmod 600 {path}") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _unusable(path, "it is not a regular file", f"move it away: {path}")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _unusable(path, "other users have rights on it", f"chmod 600 {path}")
        text = os.read(handle, 1024).decode("ascii", "replace")
    finally:
        os.close(handle)
    return _parse(text, str(path))


def _create(path: Path) -> bytes:
    """Write a new key beside its place and link it there: an existing file wins, and nobody sees half of one."""
    value = secrets.token_bytes(SIZE)
    fresh = path.with_name(f".{FILE}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                stream.write(value.hex() + "\n")
                stream.flush()
                os.fsync(handle)
            os.link(fresh, path)
            _sync(path.parent)
        except FileExistsError:
            return _existing(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as fault:
        hint = f"make the folder writable, or set {VARIABLE}"
        raise _unusable(path, f"it cannot be written: {os.strerror(fault.errno or 0)}", hint) from None
    return value


def _existing(path: Path) -> bytes:
    held = _read(path)
    if held is None:
        raise _unusable(path, "it appeared and vanished", "try again")
    return held


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unusable(path: Path, why: str, hint: str) -> Diagnosed:
    return error("fingerprint-key", f"the fingerprint key {path} cannot be used: {why}", hint=hint)
