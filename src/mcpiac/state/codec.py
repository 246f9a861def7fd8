"""State values ↔ bytes, with pydantic at this edge: unknown keys and wrong types are errors, never dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from mcpiac.model.codec import plain
from mcpiac.model.record import State
from mcpiac.state.ledger import Begin, End, Progress, Record


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Snapshot(_Strict):
    state: State


class _Begin(_Strict):
    begin: Begin


class _Progress(_Strict):
    progress: Progress


class _End(_Strict):
    end: End


class Unfit(ValueError):
    """Data of the wrong shape; says where and what, in one line."""


def state_bytes(state: State) -> bytes:
    """A snapshot: indented, servers and sandboxes by name, so that two of them compare line by line."""
    ordered = replace(
        state,
        sandboxes=dict(sorted(state.sandboxes.items())),
        servers=dict(sorted(state.servers.items())),
    )
    text: str = _Snapshot.model_construct(state=ordered).model_dump_json(indent=1)
    # The envelope carries strictness only; the file is the state itself.
    inner = text.split("\n", 1)[1].rsplit("\n", 1)[0]
    return inner.removeprefix(' "state": ').encode() + b"\n"


def state_of(data: Any) -> State:
    """A snapshot's JSON value as a state; raises ``Unfit``."""
    try:
        return _Snapshot.model_validate({"state": data}).state
    except ValidationError as fault:
        raise Unfit(_first(fault)) from None


def record_data(record: Record) -> dict[str, Any]:
    """A journal record as JSON-ready data."""
    if isinstance(record, Begin):
        return {"begin": plain(record)}
    if isinstance(record, Progress):
        return {"progress": plain(record)}
    return {"end": plain(record)}


def record_of(data: Any) -> Record:
    """The record of a journal; raises ``Unfit``."""
    try:
        if "begin" in data:
            return _Begin.model_validate(data).begin
        if "progress" in data:
            return _Progress.model_validate(data).progress
        return _End.model_validate(data).end
    except (ValidationError, TypeError) as fault:
        raise Unfit(_first(fault) if isinstance(fault, ValidationError) else "not a record") from None


def compact(value: Any) -> bytes:
    """JSON in one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _first(fault: ValidationError) -> str:
    """Where and why, without the value: a hand-edited file may hold anything."""
    first = fault.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the whole"
    return f"{where}: {first['msg']}"
