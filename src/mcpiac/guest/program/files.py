"""The declared files of a guest: written when their declaration changed, left alone when the server edited them."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from .fault import Failed

SECRET = "secret"
"""Stands for the digest of a file whose content is a secret."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(path: str) -> bytes | None:
    """The bytes of a regular file, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write(path: str, data: bytes, mode: int) -> None:
    """Replace a file whole, so that no reader sees half of it."""
    temporary = f"{path}.mcpiac-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):
            raise IsADirectoryError(21, "a folder is in its place")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except OSError as why:
        raise Failed("file-not-writable", f"cannot write {path} in the guest: {why.strerror}") from None


def put(
    declared: Sequence[Mapping[str, Any]],
    remove: Mapping[str, str | None],
    *,
    written: Mapping[str, str],
    overwrite: bool,
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """Bring the files in line. Returns ``changed`` and ``kept`` paths, and ``written`` (path → digest) for next time.

    Content that is neither what was recorded of a file nor what an earlier run has ``written`` was edited here: it is
    kept where the file is declared no more, and an error under a changed declaration unless ``overwrite``. Nothing is
    written before every file was judged.
    """
    due: list[tuple[Mapping[str, Any], bytes]] = []
    for file in declared:
        if not file["write"]:
            continue
        path, there = file["path"], read(file["path"])
        if SECRET in file:
            data = secrets[file[SECRET]].encode("utf-8", "surrogateescape")
            if there != data:
                due.append((file, data))
            continue
        found = None if there is None else sha256(there)
        if found == file["sha256"]:
            continue
        if found is not None and found not in (file["recorded"], written.get(path)) and not overwrite:
            raise Failed(
                "file-edited",
                f"{path} was edited in the guest, and its declaration changed",
                "take what you need from it, then apply with --overwrite-files",
            )
        due.append((file, base64.b64decode(file["content"])))
    changed, kept, now = [], [], dict(written)
    for file, data in due:
        write(file["path"], data, int(file["mode"], 8))
        changed.append(file["path"])
    for file in declared:
        if not file["write"]:
            continue
        now[file["path"]] = file.get("sha256", SECRET)
        mode = int(file["mode"], 8)
        if os.stat(file["path"]).st_mode & 0o7777 != mode:
            os.chmod(file["path"], mode)
            changed.append(file["path"])
    for path, recorded in sorted(remove.items()):
        there, last = read(path), now.pop(path, None)
        if there is None:
            continue
        if last == SECRET or sha256(there) in (recorded, last):
            os.unlink(path)
            changed.append(path)
        else:
            kept.append(path)
    return {"changed": changed, "written": now, "kept": kept}
