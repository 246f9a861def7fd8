"""Inside a sandbox: commands, files, processes, logs. All but the logs go through the agent and wake the sandbox."""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from mcpiac import wire
from mcpiac.local import logs
from mcpiac.local.agent.frames import MAX_FILE, MAX_FRAME, FrameError, pack, unpack
from mcpiac.local.api.app import FLEET, Lines, body, flag, number, told
from mcpiac.local.api.sandboxes import check_env
from mcpiac.local.errors import Refused
from mcpiac.local.fleet import stamp
from mcpiac.local.link import AgentError, AgentGone
from mcpiac.local.sandbox import Sandbox

OUTPUT_MAX = 8 * 1024 * 1024
"""Bytes kept of each output of a waiting command: the end of it."""
COMMAND_MAX = 64 * 1024
TIMEOUT_MAX = 600
_SLACK = 15.0
"""Seconds beyond its own timeout after which a command's silence is the agent's fault."""
_HEARTBEAT = 15.0
_SERVICE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Output:
    """One output of a command: its last ``OUTPUT_MAX`` bytes."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self.truncated = False

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= OUTPUT_MAX:
            self._size -= len(self._pieces.popleft())
            self.truncated = True

    @property
    def text(self) -> str:
        return b"".join(self._pieces).decode("utf-8", "replace")


def _box(request: web.Request) -> Sandbox:
    return request.app[FLEET].use(request.match_info["id"])


async def command(request: web.Request) -> web.StreamResponse:
    """``POST …/commands``: waiting, streamed or detached."""
    asked = await body(request, wire.CommandRequest)
    box = _box(request)
    if not asked.command or "\0" in asked.command or len(asked.command) > COMMAND_MAX:
        raise Refused(400, "invalid_command", f"a command has 1 to {COMMAND_MAX} characters and no zero byte")
    if not 1 <= asked.timeout_seconds <= TIMEOUT_MAX:
        raise Refused(400, "invalid_timeout", f"timeoutSeconds must be 1 to {TIMEOUT_MAX}")
    message = {
        "op": "start" if asked.detached else "run",
        "command": asked.command,
        "cwd": asked.cwd,
        "env": check_env(asked.env or {}),
        "timeout": None if asked.detached else asked.timeout_seconds,
    }
    if asked.detached:
        return await _detached(box, asked, message)
    note = _note(box, asked, "stream" if asked.stream else "sync")
    try:
        if asked.stream:
            return await _streamed(request, box, asked, message, note)
        return await _waiting(box, asked, message, note)
    finally:
        if note["status"] == "running":
            note.update(status="failed", finishedAt=stamp(time.time()))


async def _waiting(
    box: Sandbox, asked: wire.CommandRequest, message: Mapping[str, Any], note: dict[str, Any]
) -> web.Response:
    outputs = {"stdout": Output(), "stderr": Output()}
    with box.using() as link:
        async with link.converse(message) as conversation:
            while True:
                frame = await conversation.next(asked.timeout_seconds + _SLACK)
                if frame is None:
                    raise AgentGone("the agent lost the command")
                if frame.get("event") in outputs:
                    outputs[str(frame["event"])].add(_bytes(frame))
                elif frame.get("event") == "exit":
                    break
    code, name, timed_out = _exit(frame)
    _noted(note, code, name, timed_out)
    answer = wire.CommandAnswer(
        success=code == 0,
        exit_code=None if timed_out else code,
        stdout=outputs["stdout"].text,
        stderr=outputs["stderr"].text,
        timed_out=timed_out,
        stdout_truncated=outputs["stdout"].truncated,
        stderr_truncated=outputs["stderr"].truncated,
    )
    return told(answer, signal=name, commandId=note["commandId"], startedAt=note["startedAt"])


async def _streamed(
    request: web.Request,
    box: Sandbox,
    asked: wire.CommandRequest,
    message: Mapping[str, Any],
    note: dict[str, Any],
) -> web.StreamResponse:
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
    lines = Lines(request)
    with box.using() as link:
        async with link.converse(message) as conversation:
            first = await conversation.next(_SLACK)
            if first is None:
                raise AgentGone("the agent lost the command")
            await lines.begin()
            await lines.send({"type": "started", "commandId": note["commandId"], "pid": _whole(first.get("pid"))})
            try:
                while True:
                    frame = await conversation.next(asked.timeout_seconds + _SLACK)
                    if frame is None:
                        raise AgentGone("the agent lost the command")
                    event = str(frame.get("event"))
                    if event == "exit":
                        break
                    if event in decoders and (text := decoders[event].decode(_bytes(frame))):
                        await lines.send({"type": event, "data": text})
            except (AgentGone, AgentError) as fault:
                await lines.send(
                    {"type": "error", "error": "command_lost", "message": str(fault), "retryable": False}
                )
                await lines.response.write_eof()
                return lines.response
    for event, decoder in decoders.items():
        if text := decoder.decode(b"", True):
            await lines.send({"type": event, "data": text})
    code, name, timed_out = _exit(frame)
    _noted(note, code, name, timed_out)
    last = {"type": "exit", "exitCode": None if timed_out else code, "success": code == 0, "timedOut": timed_out}
    await lines.send({**last, "signal": name, "commandId": note["commandId"]})
    await lines.response.write_eof()
    return lines.response


async def _detached(box: Sandbox, asked: wire.CommandRequest, message: Mapping[str, Any]) -> web.Response:
    with box.using() as link:
        started = await link.ask(message)
    number = _whole(started.get("processId"))
    note = _note(box, asked, "detached")
    note["processId"] = number
    answer = wire.DetachedAnswer(
        process_id=number,
        pid=_whole(started.get("pid")),
        command=asked.command,
        started_at=note["startedAt"],
        log_path=f"/home/user/.mcpiac/processes/{number}.log",
    )
    return told(answer, 202, commandId=note["commandId"], errLogPath=f"/home/user/.mcpiac/processes/{number}.err")


async def status(request: web.Request) -> web.Response:
    """``GET …/commands/{processId}?stdoutOffset=&stderrOffset=&tailBytes=``."""
    box, process = _box(request), _process(request)
    ask: dict[str, Any] = {"op": "status", "processId": process}
    for name in ("stdoutOffset", "stderrOffset", "tailBytes"):
        ask[name] = number(request.query, name)
    with box.using() as link:
        try:
            found = await link.ask(ask)
        except AgentError as fault:
            if fault.code != "not_found":
                raise
            return _lost(box, process)
    running = found.get("running") is True
    code = None if running or found.get("timedOut") is True else _whole(found.get("exitCode"))
    signal = found.get("signal")
    if not running:
        _process_ended(box, process, code, signal)
    answer = wire.ProcessStatus(
        process_id=process,
        pid=_whole(found.get("pid")),
        status="running" if running else "exited",
        running=running,
        exit_code=code,
        stdout=_bytes(found, "stdout").decode("utf-8", "replace"),
        stderr=_bytes(found, "stderr").decode("utf-8", "replace"),
        stdout_offset=_whole(found.get("stdoutOffset")),
        stderr_offset=_whole(found.get("stderrOffset")),
        stdout_next_offset=_whole(found.get("stdoutNextOffset")),
        stderr_next_offset=_whole(found.get("stderrNextOffset")),
        more=found.get("more") is True,
    )
    return told(answer, known=True, signal=signal if isinstance(signal, str) else None)


def _lost(box: Sandbox, process: int) -> web.Response:
    """A process that the agent does not know: of an earlier life of the sandbox, or of none."""
    if not any(note.get("processId") == process for note in box.history):
        raise Refused(404, "process_not_found", "there is no such process")
    _process_ended(box, process, None, None, "lost")
    return told(wire.ProcessStatus(process_id=process, status="lost", running=False), known=False)


async def attach(request: web.Request) -> web.StreamResponse:
    """``GET …/commands/{processId}/stream``: from the asked offsets on, as it comes."""
    box, process = _box(request), _process(request)
    ask: dict[str, Any] = {"op": "follow", "processId": process}
    for name in ("stdoutOffset", "stderrOffset"):
        ask[name] = number(request.query, name, 0)
    lines = Lines(request)
    with box.using() as link:
        async with link.converse(ask) as conversation:
            frame = await conversation.next(_SLACK)
            await lines.begin()
            pending: asyncio.Task[dict[str, Any] | None] | None = None
            try:
                while frame is not None:
                    await lines.send(_attached(frame))
                    pending = asyncio.create_task(conversation.next(None))
                    while not (await asyncio.wait({pending}, timeout=_HEARTBEAT))[0]:
                        await lines.send({"type": "heartbeat"})
                    frame = pending.result()
            except (AgentGone, AgentError) as fault:
                await lines.send({"type": "error", "error": "command_lost", "message": str(fault)})
            finally:
                if pending is not None:
                    pending.cancel()
    await lines.response.write_eof()
    return lines.response


def _attached(frame: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(frame.get("event"))
    if kind in ("stdout", "stderr"):
        text = _bytes(frame).decode("utf-8", "replace")
        return {"type": kind, "data": text, "nextOffset": _whole(frame.get("nextOffset"))}
    offsets = {name: _whole(frame.get(name)) for name in ("stdoutOffset", "stderrOffset")}
    if kind == "exit":
        code, name, _timed_out = _exit(frame)
        return {"type": "exit", "status": "exited", "exitCode": code, "signal": name, **offsets}
    return {"type": "attached", "processId": _whole(frame.get("processId")), **offsets}


async def kill(request: web.Request) -> web.Response:
    """``DELETE …/commands/{processId}``: with everything that it started."""
    box, process = _box(request), _process(request)
    with box.using() as link:
        try:
            found = await link.ask({"op": "kill", "processId": process})
        except AgentError as fault:
            if fault.code != "not_found" or not any(note.get("processId") == process for note in box.history):
                raise
            found = {}
    signaled = found.get("signaled") is True
    if signaled:
        _process_ended(box, process, 137, "SIGKILL")
    note = next((note for note in box.history if note.get("processId") == process), None)
    return told(wire.StoppedAnswer(process_id=process, signaled=signaled, command=note))


async def history(request: web.Request) -> web.Response:
    """``GET …/command-history``: the commands since the daemon's start, newest first."""
    found = [note for note in reversed(_box(request).history) if request.query.get("mode") in (None, note["mode"])]
    return told(wire.DoneAnswer(type="command.list"), commands=found, nextCursor=None)


async def processes(request: web.Request) -> web.Response:
    box = _box(request)
    with box.using() as link:
        found = (await link.ask({"op": "processes"})).get("processes")
    listed = [
        {
            "pid": _whole(each.get("pid")),
            "parentPid": _whole(each.get("parentPid")),
            "memoryMB": each.get("memoryMB") if isinstance(each.get("memoryMB"), float | int) else None,
            "startedAt": stamp(float(each["startedAt"])) if isinstance(each.get("startedAt"), float | int) else None,
            "command": str(each.get("command", ""))[:1000],
        }
        for each in (found[:500] if isinstance(found, list) else [])
        if isinstance(each, dict)
    ]
    return told(
        wire.DoneAnswer(type="process.list"),
        live=True,
        sampledAt=stamp(time.time()),
        total=len(listed),
        processes=listed,
    )


async def write(request: web.Request) -> web.Response:
    """``PUT …/files``."""
    asked = await body(request, wire.FileWriteRequest)
    box = _box(request)
    if asked.encoding == "base64":
        try:
            data = base64.b64decode(asked.content, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(400, "invalid_request", "content is not base64", details={"field": "content"}) from None
    else:
        data = asked.content.encode("utf-8", "surrogatepass")
    if len(data) > MAX_FILE:
        raise Refused(413, "file_too_large", f"a file may have {MAX_FILE} bytes")
    with box.using() as link:
        done = await link.ask({"op": "put", "path": asked.path, "data": pack(data)}, timeout=60)
    path = str(done.get("path", asked.path))[:4096]
    return told(wire.FileWriteAnswer(path=path, encoding=asked.encoding, size=len(data)))


async def read(request: web.Request) -> web.Response:
    """``GET …/files?path=&encoding=``: without ``encoding``, text where the file is text, else base64."""
    box, path = _box(request), request.query.get("path", "")
    wanted = request.query.get("encoding")
    with box.using() as link:
        found = await link.ask({"op": "get", "path": path}, timeout=60, largest=MAX_FRAME)
    data = _bytes(found)
    encoding, content = "base64", ""
    if wanted != "base64":
        try:
            content, encoding = data.decode(), "utf8"
        except UnicodeDecodeError:
            if wanted == "utf8":
                raise Refused(400, "invalid_encoding", "that file is no UTF-8; ask for base64") from None
    if encoding == "base64":
        content = base64.b64encode(data).decode()
    shown = str(found.get("path", path))[:4096]
    return told(wire.FileReadAnswer(path=shown, encoding=encoding, size=len(data), content=content))


async def log(request: web.Request) -> web.StreamResponse:
    """Extension: ``GET …/logs?service=&tail=&follow=``: NDJSON of LogItem. Read from the disk: wakes nothing."""
    box = _box(request)
    service = request.query.get("service", "")
    if not _SERVICE.fullmatch(service):
        raise Refused(400, "invalid_request", "service must be a service's name", details={"field": "service"})
    tail = number(request.query, "tail", 100) or 0
    disk = box.folder.disk
    lines = Lines(request)
    await lines.begin()
    if flag(request.query, "follow"):
        async for item in logs.follow(disk, service, tail):
            await lines.send(item.body())
    else:
        for item in logs.tail(disk, service, tail):
            await lines.send(item.body())
    await lines.response.write_eof()
    return lines.response


def _process(request: web.Request) -> int:
    text = request.match_info["process"]
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Refused(404, "process_not_found", "there is no such process")
    return int(text)


def _note(box: Sandbox, asked: wire.CommandRequest, mode: str) -> dict[str, Any]:
    note: dict[str, Any] = {
        "commandId": f"cmd_{time.time_ns():x}",
        "sandboxId": box.id,
        "command": asked.command[:1000],
        "cwd": asked.cwd,
        "mode": mode,
        "processId": None,
        "status": "running",
        "exitCode": None,
        "signal": None,
        "stdoutBytes": 0,
        "stderrBytes": 0,
        "outputTruncated": False,
        "startedAt": stamp(time.time()),
        "finishedAt": None,
    }
    box.history.append(note)
    return note


def _noted(note: dict[str, Any], code: int, name: str | None, timed_out: bool) -> None:
    status = "timed_out" if timed_out else "killed" if name else "exited"
    note.update(status=status, exitCode=None if timed_out else code, signal=name, finishedAt=stamp(time.time()))


def _process_ended(box: Sandbox, process: int, code: int | None, name: object, status: str | None = None) -> None:
    for note in box.history:
        if note.get("processId") == process and note["status"] == "running":
            ended = status or ("killed" if name else "exited")
            note.update(status=ended, exitCode=code, signal=name, finishedAt=stamp(time.time()))


def _bytes(frame: Mapping[str, Any], name: str = "data") -> bytes:
    try:
        return unpack(frame.get(name))
    except FrameError as fault:
        raise AgentGone(f"the agent's answer cannot be read: {fault}") from None


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _exit(frame: Mapping[str, Any]) -> tuple[int, str | None, bool]:
    name = frame.get("signal")
    return _whole(frame.get("exitCode")), name[:32] if isinstance(name, str) else None, frame.get("timedOut") is True


_ONE = "/sandboxes/{id}"
_PROCESS = "/sandboxes/{id}/commands/{process}"
ROUTES = (
    ("POST", f"{_ONE}/commands", command),
    ("GET", _PROCESS, status),
    ("DELETE", _PROCESS, kill),
    ("GET", f"{_PROCESS}/stream", attach),
    ("GET", f"{_ONE}/command-history", history),
    ("GET", f"{_ONE}/processes", processes),
    ("PUT", f"{_ONE}/files", write),
    ("GET", f"{_ONE}/files", read),
    ("GET", f"{_ONE}/logs", log),
)
