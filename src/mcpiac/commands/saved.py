"""A plan kept in a file, to be looked at now and applied later: JSON with format, version and digest, mode 0600."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcpiac.model.codec import digest, plain
from mcpiac.model.diagnostic import error
from mcpiac.model.plan import PLAN_FORMAT, Plan
from mcpiac.model.record import State

FORMAT = "mcpiac-plan"
MAX_BYTES = 256 * 1024 * 1024


def is_saved(path: Path) -> bool:
    """Whether a file looks like a saved plan rather than a stack. Never raises."""
    try:
        with path.open("rb") as file:
            return file.read(64).startswith(b'{"format": "' + FORMAT.encode())
    except OSError:
        return False


def save(path: Path, plans: Sequence[Plan], version: str) -> None:
    """Write whole or not at all. Secrets are in it by reference only; file contents are in it whole."""
    body = [plain(p) for p in plans]
    document = {
        "format": FORMAT,
        "version": PLAN_FORMAT,
        "mcpiac": version,
        "digest": digest(body),
        "plans": body,
    }
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as fault:
        fresh.unlink(missing_ok=True)
        raise error("plan-not-saved", f"the plan could not be written to {path}: {fault.strerror}") from fault


def load(path: Path) -> list[Plan]:
    """The plans of a file that ``save`` wrote; ``Diagnosed`` where it is another version, damaged or changed."""
    from pydantic import TypeAdapter, ValidationError

    try:
        if path.stat().st_size > MAX_BYTES:
            raise error("plan-file-damaged", f"{path} is larger than any plan")
        document: Any = json.loads(path.read_bytes())
    except OSError as fault:
        raise error("plan-file-unreadable", f"{path} cannot be read: {fault.strerror}") from fault
    except ValueError as fault:
        raise _damaged(path, "it is no JSON") from fault
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged(path, "it is not a saved plan")
    if document.get("version") != PLAN_FORMAT:
        raise error(
            "plan-file-version",
            f"{path} was written by mcpiac {document.get('mcpiac')} in another format ({document.get('version')})",
            hint="Make the plan again: `mcpiac plan --out FILE`.",
        )
    if digest(document.get("plans")) != document.get("digest"):
        raise _damaged(path, "its content does not match its digest")
    try:
        return TypeAdapter(list[Plan]).validate_python(document["plans"])
    except ValidationError as fault:
        raise _damaged(path, f"a field is not what it must be ({fault.error_count()} of them)") from fault


def _damaged(path: Path, why: str) -> Exception:
    return error("plan-file-damaged", f"{path}: {why}", hint="Make the plan again: `mcpiac plan --out FILE`.")


def still_fits(plan: Plan, state: State, file: str) -> None:
    """Refuses a plan whose state has moved on since it was made; one that was begun on this very state goes on."""
    begun = state.plan is not None and state.plan.id == plan.id
    if begun:
        return
    if state.lineage != plan.lineage:
        raise stale(plan, file, "the state was made anew since (another lineage)")
    if state.serial != plan.base_serial:
        raise stale(plan, file, f"it was made on state serial {plan.base_serial}, and that is {state.serial} now")


def stale(plan: Plan, file: str, why: str) -> Exception:
    """A saved plan that no longer says what would happen."""
    hint = f"Make it again: `mcpiac plan {plan.stack} --out {file}`."
    return error("plan-stale", f"{file} no longer fits {plan.stack}: {why}", hint=hint)
