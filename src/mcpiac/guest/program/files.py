"""The declared files of a guest: written when their declaration changed, left alone when the server edited them."""

from __future__ import annotations

import base64
import hashlib
import os
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
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read()
        except OSError:
            return None


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
    wanted: Sequence[Mapping[str, Any]],
    *,
    written: Mapping[str, str],
    recorded: Mapping[str, str],
    overwrite: bool,
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """Bring the files in line. Returns ``changed`` and ``kept`` paths, and ``written`` (path → digest) for next time.

    ``written`` is what an earlier run wrote, ``recorded`` what the last successful one was told: content that equals
    neither was edited here. An edited file whose declaration is as it was is kept; under a changed declaration it
    is an error unless ``overwrite``. Nothing is written before every file was judged.
    """
    due: list[tuple[Mapping[str, Any], bytes]] = []
    kept: list[str] = []
    for file in wanted:
        path, there = file["path"], read(file["path"])
        if SECRET in file:
            data = secrets[file[SECRET]].encode("utf-8", "surrogateescape")
            if there != data:
                due.append((file, data))
            continue
        found = None if there is None else sha256(there)
        if found == file["sha256"]:
            continue
        known = {written.get(path), recorded.get(path)}
        edited = found is not None and found not in known
        if edited and file["sha256"] in known:
            kept.append(path)
        elif edited and not overwrite:
            raise Failed(
                "file-edited",
                f"{path} was edited in the guest, and its declaration changed",
                "take what you need from it, then apply with --overwrite-files",
            )
        else:
            due.append((file, base64.b64decode(file["content"])))
    changed = []
    for file, data in due:
        write(file["path"], data, int(file["mode"], 8))
        changed.append(file["path"])
    for file in wanted:
        mode = int(file["mode"], 8)
        if file["path"] not in kept and os.stat(file["path"]).st_mode & 0o7777 != mode:
            os.chmod(file["path"], mode)
    now = {file["path"]: file.get("sha256", SECRET) for file in wanted}
    for path in sorted((set(written) | set(recorded)) - set(now)):
        there = read(path)
        if there is None:
            continue
        if written.get(path) == SECRET or sha256(there) in (written.get(path), recorded.get(path)):
            os.unlink(path)
            changed.append(path)
        else:
            kept.append(path)
    return {"changed": changed, "written": now, "kept": kept}
