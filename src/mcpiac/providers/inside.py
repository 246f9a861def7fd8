"""Inside a sandbox: files, commands, packages, logs."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from mcpiac import wire
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import CommandResult, Installed, LogLine
from mcpiac.model.spec import Package
from mcpiac.providers.api import segment
from mcpiac.providers.core import Core

COMMAND_MAX = 600
"""Seconds: the longest ``timeoutSeconds`` of the API."""

_command = TypeAdapter(wire.CommandAnswer)
_detached = TypeAdapter(wire.DetachedAnswer)
_process = TypeAdapter(wire.ProcessStatus)
_read = TypeAdapter(wire.FileReadAnswer)
_install = TypeAdapter(wire.InstallFrame)
_log = TypeAdapter(wire.LogItem)
_frame = TypeAdapter(wire.CommandFrame)
_any = TypeAdapter(dict[str, Any])


class Inside(Core):
    """The calls under ``/sandboxes/{id}/files``, ``…/commands``, and the extensions ``…/packages``, ``…/logs``."""

    async def put_file(self, id: str, path: str, content: bytes) -> None:
        """Write a file whole. Sent again, it is the same file: a lost answer is no reason to stop."""
        try:
            text = content.decode()
            body = wire.FileWriteRequest(path=path, content=text, encoding="utf8")
        except UnicodeDecodeError:
            body = wire.FileWriteRequest(path=path, content=base64.b64encode(content).decode(), encoding="base64")

        async def act() -> bool:
            await self._api.call(
                _any,
                "PUT",
                f"/sandboxes/{segment(id)}/files",
                operation="write",
                what=f"write {path} in sandbox {id}",
                json=body.body(),
            )
            return True

        async def look() -> bool | None:
            try:
                return True if await self.read_file(id, path) == content else None
            except ProviderError as fault:
                if fault.kind in ("not_found", "rejected"):
                    return None
                raise

        await self._settled(act, look)

    async def read_file(self, id: str, path: str) -> bytes:
        answer = await self._api.call(
            _read,
            "GET",
            f"/sandboxes/{segment(id)}/files",
            operation="get",
            what=f"read {path} in sandbox {id}",
            params={"path": path, "encoding": "base64"},
        )
        return base64.b64decode(answer.content) if answer.encoding == "base64" else answer.content.encode()

    async def install(
        self,
        id: str,
        packages: Sequence[Package],
        *,
        scripts: bool,
        hosts: Sequence[str] = (),
        progress: Callable[[str], None],
    ) -> tuple[Installed, ...]:
        """Only where ``traits.package_store``: else the guest's set-up installs."""
        raise ProviderError("rejected", f"the provider {self._traits.provider} keeps no packages")

    async def run(
        self,
        id: str,
        command: str,
        *,
        timeout: float,
        progress: Callable[[str], None] | None = None,
        detached: bool = False,
    ) -> CommandResult:
        """Run a shell command to its end. ``in_doubt``: it may be running."""
        if detached:
            return await self._run_detached(id, command, timeout, progress)
        body = wire.CommandRequest(command=command, timeout_seconds=_whole(timeout), stream=progress is not None)
        if progress is not None:
            return await self._run_streamed(id, body, progress)
        answer = await self._api.call(
            _command,
            "POST",
            f"/sandboxes/{segment(id)}/commands",
            operation="command",
            what=f"run a command in sandbox {id}",
            json=body.body(),
            read=body.timeout_seconds + 30,
        )
        return CommandResult(_exit(answer.exit_code), answer.stdout, answer.stderr, answer.timed_out)

    async def _run_streamed(
        self, id: str, body: wire.CommandRequest, progress: Callable[[str], None]
    ) -> CommandResult:
        out: dict[str, list[str]] = {"stdout": [], "stderr": []}
        lines = self._api.lines(
            _frame,
            "POST",
            f"/sandboxes/{segment(id)}/commands",
            operation="command",
            what=f"run a command in sandbox {id}",
            json=body.body(),
            read=body.timeout_seconds + 30,
        )
        async for frame in lines:
            if frame.type in out and frame.data:
                out[frame.type].append(frame.data)
                _tell(progress, frame.data)
            elif frame.type == "exit":
                texts = ("".join(out["stdout"]), "".join(out["stderr"]))
                return CommandResult(_exit(frame.exit_code), *texts, bool(frame.timed_out))
            elif frame.type == "error":
                raise ProviderError("in_doubt", f"a command in sandbox {id} was lost: {frame.message or ''}")
        raise ProviderError("in_doubt", f"the answer about a command in sandbox {id} ended early")

    async def _run_detached(
        self, id: str, command: str, timeout: float, progress: Callable[[str], None] | None
    ) -> CommandResult:
        path = f"/sandboxes/{segment(id)}/commands"
        started = await self._api.call(
            _detached,
            "POST",
            path,
            operation="command",
            what=f"start a command in sandbox {id}",
            json=wire.CommandRequest(command=command, detached=True).body(),
        )
        deadline, pause = time.monotonic() + timeout, self._shortest
        out, err = "", ""
        offsets: dict[str, str | int] = {"stdoutOffset": 0, "stderrOffset": 0}
        at = f"{path}/{segment(started.process_id)}"
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self._longest)
            status = await self._api.call(
                _process, "GET", at, operation="get", what=f"follow a command in sandbox {id}", params=offsets
            )
            out, err = out + status.stdout, err + status.stderr
            if progress is not None:
                _tell(progress, status.stderr or status.stdout)
            offsets = {
                "stdoutOffset": _next(status.stdout_next_offset, status.stdout_offset, status.stdout),
                "stderrOffset": _next(status.stderr_next_offset, status.stderr_offset, status.stderr),
            }
            if status.more:
                pause = 0.0
                continue
            if status.status == "lost":
                raise ProviderError("transient", f"sandbox {id} forgot a command that ran in it; apply again")
            if not status.running:
                return CommandResult(_exit(status.exit_code), out, err)
            pause = pause or self._shortest
            if time.monotonic() >= deadline:
                await self._api.call(_any, "DELETE", at, operation="write", what=f"end a command in sandbox {id}")
                return CommandResult(_exit(None), out, err, timed_out=True)

    def logs(self, id: str, service: str, *, follow: bool, tail: int) -> AsyncIterator[LogLine]:
        """A server's log, oldest first; reading it wakes nothing."""
        raise NotImplementedError

    async def _installed(
        self,
        id: str,
        packages: Sequence[Package],
        scripts: bool,
        hosts: Sequence[str],
        progress: Callable[[str], None],
        settings: Mapping[str, str],
    ) -> tuple[Installed, ...]:
        items = tuple(
            wire.PackageItem(registry=p.registry, name=p.name, version=p.version, extras=p.extras) for p in packages
        )
        named = ", ".join(str(p) for p in packages) or "no packages"
        body = wire.InstallRequest(
            packages=items, scripts=scripts, hosts=tuple(hosts), settings=dict(settings)
        ).body()
        lines = self._api.lines(
            _install,
            "PUT",
            f"/sandboxes/{segment(id)}/packages",
            operation="get",  # exactly this set, mounted: repeating it is free
            what=f"install {named}",
            json=body,
            read=COMMAND_MAX,
        )
        async for frame in lines:
            if frame.type == "progress" and frame.text:
                progress(frame.text)
            elif frame.type == "error" and frame.error is not None:
                details = frame.error.details or {}
                raise ProviderError(
                    "transient" if details.get("retryable") is True else "rejected",
                    frame.error.message,
                    code=frame.error.code,
                    hint=str(details.get("hint", "")),
                    output=str(details.get("output", ""))[-4000:],
                )
            elif frame.type == "installed" and frame.installed is not None:
                given = {(p.registry, p.name, p.version, p.extras): p for p in packages}
                return tuple(_lying(item, given) for item in frame.installed)
        raise ProviderError("transient", f"install {named}: the answer ended early")

    async def _log_lines(self, id: str, service: str, follow: bool, tail: int) -> AsyncIterator[LogLine]:
        lines = self._api.lines(
            _log,
            "GET",
            f"/sandboxes/{segment(id)}/logs",
            operation="get",
            what=f"read the log of {service} in sandbox {id}",
            params={"service": service, "tail": tail, "follow": str(follow).lower()},
            read=float("inf") if follow else None,
        )
        async for item in lines:
            yield LogLine(item.at, item.stream, item.text)


def _whole(timeout: float) -> int:
    return max(1, min(COMMAND_MAX, round(timeout)))


def _exit(code: int | None) -> int:
    """A command that was killed has no exit code; 124 is what timeout(1) says."""
    return 124 if code is None else code


def _next(told: int | None, offset: int, text: str) -> int:
    return told if told is not None else offset + len(text.encode())


def _tell(progress: Callable[[str], None], text: str) -> None:
    last = next((line for line in reversed(text.splitlines()) if line.strip()), None)
    if last is not None and not last.startswith('{"'):
        progress(last.strip())


def _lying(item: wire.InstalledItem, given: Mapping[tuple[Any, ...], Package]) -> Installed:
    said = item.package
    package = given.get((said.registry, said.name, said.version, said.extras))
    if package is None:
        raise ProviderError("rejected", f"the provider installed {said.name} {said.version}, which was not asked for")
    return Installed(package, item.path, item.entry, item.integrity, item.env)
