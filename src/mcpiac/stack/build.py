"""A checked server becomes its effective spec: every key filled in, files read, packages parsed."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mcpiac.model.spec import Bridge, Build, Egress, FileSpec, Lifecycle, ServerSpec, Timeouts
from mcpiac.stack.finding import Finding
from mcpiac.stack.grammar import Bad
from mcpiac.stack.package import package
from mcpiac.stack.rules import CONTENT_LARGEST, Case
from mcpiac.stack.schema import File, Server
from mcpiac.stack.source import kind_of

_EGRESS = Egress()
_STATE = "state"


def spec(part: Server, files: Mapping[str, FileSpec]) -> ServerSpec:
    """The effective spec of a server that passed all rules. ``files``: its declared files, read."""
    build, life, times = part["build"], part["lifecycle"], part["timeouts"]
    return ServerSpec(
        package=package(part["package"], part["version"]) if part["package"] and part["version"] else None,
        command=tuple(part["command"]) if part["command"] else None,
        args=tuple(part["args"]),
        env=part["env"],
        files=files,
        secrets=part["secrets"],
        size=part["size"],
        ttl=part["ttl"],
        idle=part["idle"],
        transport=part["transport"],
        bind=part["bind"],
        port=part["port"],
        path=part["path"],
        access=part["access"],
        hosted=part["hosted"],
        bridge=_bridge(part),
        egress=_EGRESS,
        labels=part["labels"],
        title=part["title"],
        disabled=part["disabled"],
        tools=part["tools"],
        allow_plain=tuple(sorted(set(part["allow_plain"]))),
        build=Build(build["scripts"], tuple(sorted(set(build["hosts"]))) if build["scripts"] else ()),
        lifecycle=Lifecycle(
            life["prevent_destroy"], tuple(sorted(set(life["ignore"]))), life["moved_from"], life["on_expiry"]
        ),
        timeouts=Timeouts(times["create"], times["setup"], times["check"]),
    )


def _bridge(part: Server) -> Bridge | None:
    """The bridge that was named; None for the one of this mcpiac, and where none is needed."""
    bridge = part["bridge"]
    if bridge is None or bridge["name"] is None or part["transport"] != "stdio":
        return None
    return Bridge(bridge["name"], bridge["version"])


def read_files(case: Case, root: Path) -> tuple[dict[str, FileSpec], list[Finding]]:
    """The declared files with their contents; a ``from:`` that may not or cannot be read is a finding.

    A file without exactly one source was found by a rule already.
    """
    made: dict[str, FileSpec] = {}
    findings = []
    for guest, file in case.part["files"].items():
        if (file["content"], file["from"], file["secret"]).count(None) != 2:
            continue
        try:
            made[guest] = _file(file, root)
        except Bad as bad:
            where = (*case.path, "files", guest, "from")
            findings.append(Finding(bad.code, bad.summary, where, bad.hint, bad.detail))
    return made, findings


def digest(name: str, provider: str, servers: Mapping[str, ServerSpec]) -> str:
    """SHA-256 of the effective stack: the same for every way of writing it."""
    value = {"stack": name, "provider": provider, "servers": servers}
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_fields)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fields(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    return dict(value)


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _file(file: File, root: Path) -> FileSpec:
    if file["content"] is not None:
        return FileSpec(content=file["content"], mode=file["mode"])
    if file["secret"] is not None:
        return FileSpec(secret=file["secret"], mode=file["mode"])
    named = file["from"] or ""
    data = read_inside(root, named)
    try:
        return FileSpec(content=data.decode("utf-8"), mode=file["mode"], origin=named)
    except UnicodeDecodeError:
        content = base64.b64encode(data).decode("ascii")
        return FileSpec(content=content, encoding="base64", mode=file["mode"], origin=named)


def read_inside(root: Path, named: str) -> bytes:
    """A regular file of at most 1 MiB that lies, after symlinks, in the project: not in .git, not in the state.

    Raises ``Bad``. Opening never waits, and the file that was looked at is the file that is read.
    """
    if not named or "\x00" in named:
        raise Bad("from-missing", "`from` names no file", "write: ./notes.txt")
    base = root.resolve()
    try:
        real = (base / named).resolve()
    except (OSError, RuntimeError):
        raise Bad("from-unreadable", "this path leads in a circle of symlinks", "name the file itself") from None
    if not real.is_relative_to(base):
        summary = "this file lies outside the project, once symlinks are followed"
        raise Bad("from-outside", summary, "copy it into the project")
    parts = [part.lower() for part in real.relative_to(base).parts]
    if ".git" in parts:
        raise Bad("from-forbidden", "a file of .git is never sent into a sandbox", "copy what is needed elsewhere")
    if parts[:1] == [_STATE]:
        raise Bad(
            "from-forbidden", "a file of the state is never sent into a sandbox", "copy what is needed elsewhere"
        )
    try:
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        summary = "there is no such file in the project"
        raise Bad("from-missing", summary, "the path begins at the project's folder") from None
    except OSError as fault:
        raise Bad(
            "from-unreadable", f"the file cannot be read: {_why(fault)}", "give your user the right to read it"
        ) from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise Bad("from-not-regular", f"this is {kind_of(mode)}, not a regular file", "name a file")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            data = stream.read(CONTENT_LARGEST + 1)
    finally:
        os.close(handle)
    if len(data) > CONTENT_LARGEST:
        raise Bad("file-content-too-large", "a file has at most 1 MiB")
    return data


def _why(fault: Exception) -> str:
    number = getattr(fault, "errno", None) or errno.ELOOP
    return os.strerror(number)
