"""Where a secret comes from becomes its value, or one finding that says what to type. No message holds a value."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin
from mcpiac.model.secret import Secret
from mcpiac.model.spec import SecretRef
from mcpiac.secrets import tracked

LARGEST = 64 * 1024
"""Bytes of one secret: what the service takes as a whole environment."""

_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def resolve(
    refs: Mapping[str, SecretRef],
    root: Path,
    environ: Mapping[str, str],
    *,
    address: str | None = None,
    origin: Callable[[], Origin | None] = lambda: None,
) -> tuple[dict[str, Secret], list[Diagnostic]]:
    """The values of one server's secrets, and what is wrong with those that are missing from them.

    ``root`` is what a relative ``file:`` is relative to. ``address`` and ``origin`` (of the server's ``secrets``) go
    into the findings; ``origin`` is asked only for one, since to know it a stack's text is read again. Warnings speak
    of values that are there. Never raises for a source.
    """
    values: dict[str, Secret] = {}
    findings: list[Diagnostic] = []
    for name, ref in refs.items():
        kind, _, rest = ref.source.partition(":")
        try:
            if kind == "env":
                text = _variable(name, rest, environ)
            elif kind == "file":
                text, warnings = _file(name, rest, root, environ)
                findings += (_placed(w, address, origin) for w in warnings)
            else:
                raise _fault("secret-source", f"{name}: this source comes with a later version", "write: env:NAME")
        except Diagnosed as fault:
            findings += (_placed(d, address, origin) for d in fault.diagnostics)
        else:
            values[name] = Secret(text)
    return values, findings


def _variable(name: str, variable: str, environ: Mapping[str, str]) -> str:
    value = environ.get(variable)
    if value is None:
        raise _fault(
            "secret-not-set", f"{name}: the environment variable {variable} is not set", f"export {variable}=…"
        )
    if not value:
        raise _fault("secret-empty", f"{name}: the environment variable {variable} is empty", f"export {variable}=…")
    return _text(name, os.fsencode(value), f"the environment variable {variable}", f"export {variable}=…")


def _file(name: str, named: str, root: Path, environ: Mapping[str, str]) -> tuple[str, list[Diagnostic]]:
    path = _path(named, root, environ)
    what = f"the file {named}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise _unopened(name, what, path, fault) from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _no_file(name, what)
        with os.fdopen(handle, "rb", closefd=False) as stream:
            data = stream.read(LARGEST + 1)
    except OSError as fault:
        raise _unopened(name, what, path, fault) from None
    finally:
        os.close(handle)
    if len(data) > LARGEST:
        raise _fault("secret-too-large", f"{name}: {what} is larger than 64 KiB", "a secret is a short text")
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    hint = f"write the secret into {path}"
    if not data:
        raise _fault("secret-empty", f"{name}: {what} is empty", hint)
    return _text(name, data, what, hint), _warnings(name, what, path, mode)


def _path(named: str, root: Path, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    if named.startswith("~/") and home:
        return Path(home) / named[2:]
    return root / named


def _warnings(name: str, what: str, path: Path, mode: int) -> list[Diagnostic]:
    found = []
    if mode & _READABLE_BY_OTHERS:
        summary = f"{name}: {what} can be read by other users"
        found.append(Diagnostic("warning", "secret-file-open", summary, hint=f"chmod 600 {path}"))
    if tracked.by_git(path):
        summary = f"{name}: {what} is tracked by git, and goes wherever the repository goes"
        hint = f"git rm --cached {path}, list it in .gitignore, and change the secret itself"
        found.append(Diagnostic("warning", "secret-file-tracked", summary, hint=hint))
    return found


def _unopened(name: str, what: str, path: Path, fault: OSError) -> Diagnosed:
    if fault.errno in (errno.ENOENT, errno.ENOTDIR):
        hint = f"write the secret into {path} (and: chmod 600 {path})"
        return _fault("secret-file-missing", f"{name}: {what} does not exist", hint)
    if fault.errno in (errno.EACCES, errno.EPERM):
        return _fault("secret-file-unreadable", f"{name}: no permission to read {what}", f"chown $USER {path}")
    if fault.errno == errno.ENXIO:
        return _fault(
            "secret-file-kind", f"{name}: {what} is not a regular file", "name a file that holds the secret"
        )
    reason = os.strerror(fault.errno or 0)
    return _fault("secret-file-unreadable", f"{name}: {what} cannot be read: {reason}", "")


def _no_file(name: str, what: str) -> Diagnosed:
    return _fault("secret-file-kind", f"{name}: {what} is not a regular file", "name a file that holds the secret")


def _text(name: str, data: bytes, what: str, hint: str) -> str:
    """UTF-8 without NUL, at most 64 KiB: what an environment can carry."""
    if len(data) > LARGEST:
        raise _fault("secret-too-large", f"{name}: {what} is larger than 64 KiB", "a secret is a short text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _fault("secret-not-text", f"{name}: {what} is not UTF-8 text", hint) from None
    if "\x00" in text:
        raise _fault("secret-not-text", f"{name}: {what} holds a NUL character", hint)
    return text


def _placed(found: Diagnostic, address: str | None, origin: Callable[[], Origin | None]) -> Diagnostic:
    return replace(found, address=address, origin=origin())


def _fault(code: str, summary: str, hint: str) -> Diagnosed:
    return Diagnosed(Diagnostic("error", code, summary, hint=hint))
