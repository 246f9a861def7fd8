"""The contract server: the sandbox API in a process of its own, from memory, with delays and faults on order.

    python tests/contract/server.py --socket PATH [--port N] [--sandboxes N] [--delay-ms MS] [--boot-ms MS]
                                    [--key KEY] [--cloud]

It prints one JSON line ``{"port": …, "pid": …}`` when it listens, and ends with its stdin. ``--cloud``: without the
embedded backend's extensions. Under ``/_control`` a test orders faults, reads what was sent, changes things behind
everybody's back. Hosted URLs answer as a small MCP server would, by token. A set-up command is believed: its facts
are made from the values that were put into the guest; other commands really run, in a folder of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aiohttp import web
from faults import Faults, Handler, obey, refused
from world import Box, Refuse, World, stamp

API = "/api/v1"
MAX_PAGE = 100


class Process:
    """A detached command."""

    def __init__(self, pid: int, command: str) -> None:
        self.pid, self.command, self.started = pid, command, stamp(time.time())
        self.out, self.err = b"", b""
        self.exit: int | None = None
        self.running = True
        self.task: asyncio.Task[None] | None = None


class Server:
    def __init__(self, options: argparse.Namespace, port: int) -> None:
        self.options = options
        self.world = World(
            extended=not options.cloud, boot=options.boot_ms / 1000, hosted_at=f"http://127.0.0.1:{port}"
        )
        self.faults = Faults()
        self.log: list[dict[str, Any]] = []
        self.delay = options.delay_ms / 1000
        self.active = self.peak = 0
        self.next_pid = 1000
        self.folder = tempfile.TemporaryDirectory(prefix="mcpiac-contract-")
        for number in range(options.sandboxes):
            box, _ = self.world.create({"type": "small", "ttlSeconds": None}, f"premade-{number}")
            box.name = f"premade-{number}"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self.around], client_max_size=64 << 20)
        box, route = f"{API}/sandboxes/{{id}}", app.router.add_route
        route("GET", f"{API}/me", self.me)
        route("GET", f"{API}/limits", self.limits)
        route("GET", f"{API}/sandboxes", self.list)
        route("POST", f"{API}/sandboxes", self.create)
        route("GET", box, self.get)
        route("PATCH", box, self.update)
        route("DELETE", box, self.delete)
        route("POST", f"{box}/stop", self.stop)
        route("POST", f"{box}/resume", self.resume)
        route("GET", f"{API}/deletion-operations/{{id}}", self.deletion)
        route("GET", f"{box}/host", self.hosted)
        route("POST", f"{box}/host", self.host)
        route("DELETE", f"{box}/host", self.hide)
        route("PUT", f"{box}/files", self.write)
        route("GET", f"{box}/files", self.read)
        route("POST", f"{box}/commands", self.command)
        route("GET", f"{box}/commands/{{pid}}", self.process)
        route("DELETE", f"{box}/commands/{{pid}}", self.kill)
        if not self.options.cloud:
            route("GET", f"{API}/instance", self.instance)
            route("PUT", f"{box}/packages", self.packages)
            route("GET", f"{box}/logs", self.logs)
        route("*", "/hosted/{name}/{rest:.*}", self.guest)
        route("POST", "/_control/faults", self.order)
        route("POST", "/_control/delay", self.set_delay)
        route("GET", "/_control/log", self.sent)
        route("DELETE", "/_control/log", self.forget)
        route("POST", "/_control/sandboxes/{id}", self.meddle)
        route("DELETE", "/_control/sandboxes/{id}", self.vanish)
        return app

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Log, delay, credential, faults, and the error envelope."""
        if request.path.startswith("/_control"):
            return await handler(request)
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            return await self._served(request, handler)
        finally:
            self.active -= 1

    async def _served(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.read()
        self.log.append(
            {
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "headers": {k: v for k, v in request.headers.items() if k.lower() != "authorization"},
                "body": body.decode("utf-8", "replace") if len(body) < 100_000 else "",
                "at": time.time(),
            }
        )
        if self.delay:
            await asyncio.sleep(self.delay)
        key = self.options.key
        if key and request.path.startswith(API) and request.headers.get("Authorization") != f"Bearer {key}":
            return refused(401, "unauthorized", "The API key is missing or wrong.")
        try:
            order = self.faults.take(request)
            if order is not None:
                return await obey(order, request, handler)
            return await handler(request)
        except Refuse as fault:
            return refused(fault.status, fault.code, fault.message, fault.details)
        except web.HTTPNotFound:
            return refused(404, "not_found", f"There is no {request.path}.")

    # the account

    async def me(self, request: web.Request) -> web.Response:
        return _ok("user.info", user={"id": "usr_contract", "login": "contract"})

    async def instance(self, request: web.Request) -> web.Response:
        return _ok("instance", id=self.world.instance, protocol=1, version="contract", pid=os.getpid())

    async def limits(self, request: web.Request) -> web.Response:
        active = sum(1 for b in self.world.boxes.values() if b.now in ("ready", "idle", "running"))
        window = {"limit": 10_000, "used": 0, "remaining": 10_000}
        return _ok(
            "limits",
            canStart=True,
            billingStatus="active",
            activeSandboxes=active,
            maxActiveSandboxes=10_000,
            startLimits={"perMinute": 10_000, "perHour": 10_000, "perDay": 10_000},
            starts={"unlimited": False, "minute": window, "hour": window, "day": window},
        )

    # sandboxes

    async def list(self, request: web.Request) -> web.Response:
        limit = min(int(request.query.get("limit", "50")), MAX_PAGE)
        states = set(filter(None, request.query.get("state", "").split(",")))
        start = int(base64.b64decode(request.query["cursor"])) if "cursor" in request.query else 0
        boxes = [b for b in self.world.boxes.values() if not states or b.now in states]
        page = boxes[start : start + limit]
        more = start + limit < len(boxes)
        cursor = base64.b64encode(str(start + limit).encode()).decode() if more else None
        return _ok(
            "sandbox.list",
            sandboxes=[self.world.view(b) for b in page],
            pageInfo={"nextCursor": cursor, "hasMore": more, "limit": limit},
        )

    async def create(self, request: web.Request) -> web.Response:
        box, new = self.world.create(await request.json(), request.headers.get("Idempotency-Key"))
        seen = self.world.view(box)
        if new:
            seen["state"] = "provisioning"
        status = "provisioning" if new or box.now == "provisioning" else "ready"
        ttl = None if box.deadline is None else round(box.deadline - time.time())
        return _ok("sandbox.created", 202, status=status, ttlSeconds=ttl, sandbox=seen)

    async def get(self, request: web.Request) -> web.Response:
        return _ok("sandbox.info", sandbox=self.world.view(self.world.get(request.match_info["id"])))

    async def update(self, request: web.Request) -> web.Response:
        box = self.world.update(request.match_info["id"], await request.json())
        return _ok("sandbox.info", sandbox=self.world.view(box))

    async def delete(self, request: web.Request) -> web.Response:
        confirmed = request.headers.get("X-Sandboxer-Confirm-Delete")
        return _ok("sandbox.deleting", 202, operation=self.world.delete(request.match_info["id"], confirmed))

    async def deletion(self, request: web.Request) -> web.Response:
        operation = self.world.deletions.get(request.match_info["id"])
        if operation is None:
            raise Refuse(404, "not_found", "There is no such deletion.")
        answer = dict(operation)
        operation |= {"status": "completed", "stage": "completed", "completedAt": stamp(time.time())}
        return _ok("deletion.operation", operation=answer)

    async def stop(self, request: web.Request) -> web.Response:
        box = self.world.stop(request.match_info["id"])
        return _ok("sandbox.action", id=box.id, status="archiving", sandbox=self.world.view(box))

    async def resume(self, request: web.Request) -> web.Response:
        box = self.world.resume(request.match_info["id"], await request.json())
        return _ok("sandbox.action", 202, id=box.id, status="provisioning", sandbox=self.world.view(box))

    # hosted ports

    async def hosted(self, request: web.Request) -> web.Response:
        box = self.world.get(request.match_info["id"])
        return _ok("sandbox.hosts", ports=[self.world.with_token(box, item) for item in box.hosted.values()])

    async def host(self, request: web.Request) -> web.Response:
        return _ok("sandbox.host", success=True, **self.world.host(request.match_info["id"], await request.json()))

    async def hide(self, request: web.Request) -> web.Response:
        self.world.hide(request.match_info["id"], int(request.query["port"]))
        return _ok("sandbox.hidden")

    async def guest(self, request: web.Request) -> web.Response:
        """A hosted URL: its token, then a small MCP server of the session era."""
        id, _, port = request.match_info["name"].rpartition("-")
        box = self.world.boxes.get(id)
        item = box.hosted.get(int(port)) if box else None
        if box is None or item is None:
            return web.Response(status=404)
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        sent = request.cookies.get("__sbx_auth") or request.query.get("_token") or bearer
        if item["access"] != "public" and sent != box.tokens[int(port)]:
            return web.Response(status=401)
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        if "id" not in asked:
            return web.Response(status=202)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked.get("method") == "initialize":
            version = asked.get("params", {}).get("protocolVersion", "2025-06-18")
            info = {"name": "contract", "version": "1"}
            answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif asked.get("method") == "tools/list":
            answer["result"] = {"tools": []}
        elif asked.get("method") == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        return web.json_response(answer)

    # inside

    async def write(self, request: web.Request) -> web.Response:
        box, body = self.world.usable(request.match_info["id"]), await request.json()
        path = os.path.normpath(os.path.join("/home/user", body["path"]))
        if not path.startswith(("/home/user/", "/tmp/")):
            raise Refuse(400, "invalid_path", "Paths must resolve under /home/user or /tmp.")
        encoding = body.get("encoding", "utf8")
        data = base64.b64decode(body["content"]) if encoding == "base64" else body["content"].encode()
        box.files[path] = data
        return _ok("file.written", success=True, path=path, encoding=encoding, size=len(data))

    async def read(self, request: web.Request) -> web.Response:
        box, path = self.world.usable(request.match_info["id"]), request.query["path"]
        if path not in box.files:
            raise Refuse(404, "file_not_found", f"There is no file {path}.")
        data, encoding = box.files[path], request.query.get("encoding", "utf8")
        text = base64.b64encode(data).decode() if encoding == "base64" else data.decode("utf-8", "replace")
        return _ok("file.read", success=True, path=path, encoding=encoding, size=len(data), content=text)

    async def command(self, request: web.Request) -> web.StreamResponse:
        box, body = self.world.usable(request.match_info["id"]), await request.json()
        timeout = body.get("timeoutSeconds", 30)
        if not 1 <= timeout <= 600:
            raise Refuse(400, "invalid_timeout", "timeoutSeconds must be 1 to 600.")
        self.next_pid += 1
        process = Process(self.next_pid, body["command"])
        if body.get("detached"):
            box.processes[process.pid] = process
            process.task = asyncio.create_task(self._run(box, process, body, 3600))
            return _ok(
                "command.started",
                success=True,
                processId=process.pid,
                pid=process.pid,
                command=process.command,
                startedAt=process.started,
                logPath=f"/home/user/.sandboxer/processes/{process.pid}.log",
            )
        if body.get("stream"):
            return await self._streamed(request, box, process, body, timeout)
        timed_out = await self._run(box, process, body, timeout)
        return _ok(
            "command.finished",
            success=process.exit == 0,
            exitCode=process.exit,
            stdout=process.out.decode("utf-8", "replace"),
            stderr=process.err.decode("utf-8", "replace"),
            timedOut=timed_out,
            stdoutTruncated=False,
            stderrTruncated=False,
        )

    async def _streamed(
        self, request: web.Request, box: Box, process: Process, body: dict[str, Any], timeout: float
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        await answer.write(_line(type="started", commandId="cmd_1"))
        timed_out = await self._run(box, process, body, timeout)
        for name, data in (("stdout", process.out), ("stderr", process.err)):
            if data:
                await answer.write(_line(type=name, data=data.decode("utf-8", "replace")))
        await answer.write(_line(type="exit", exitCode=process.exit, success=process.exit == 0, timedOut=timed_out))
        return answer

    async def _run(self, box: Box, process: Process, body: dict[str, Any], timeout: float) -> bool:
        """Run it to its end; whether its time ran out."""
        facts = _believed(box, process.command)
        if facts is not None:
            process.out, process.exit, process.running = facts, 0, False
            return False
        folder = Path(self.folder.name, box.id)
        folder.mkdir(exist_ok=True)
        child = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            process.command,
            cwd=folder,
            env={"PATH": os.environ["PATH"], **box.env, **(body.get("env") or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            process.out, process.err = await asyncio.wait_for(child.communicate(), timeout)
        except (TimeoutError, asyncio.CancelledError) as fault:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            await child.wait()
            process.running = False
            if isinstance(fault, asyncio.CancelledError):
                raise
            return True
        process.exit, process.running = child.returncode, False
        return False

    def _process(self, request: web.Request) -> Process:
        box = self.world.usable(request.match_info["id"])
        found = box.processes.get(int(request.match_info["pid"]))
        if found is None:
            raise Refuse(404, "process_not_found", "There is no such process.")
        return found

    async def process(self, request: web.Request) -> web.Response:
        process = self._process(request)
        at = int(request.query.get("stdoutOffset", "0")), int(request.query.get("stderrOffset", "0"))
        return _ok(
            "command.status",
            success=True,
            processId=process.pid,
            pid=process.pid,
            status="running" if process.running else "exited",
            running=process.running,
            exitCode=process.exit,
            stdout=process.out[at[0] :].decode("utf-8", "replace"),
            stderr=process.err[at[1] :].decode("utf-8", "replace"),
            stdoutOffset=at[0],
            stderrOffset=at[1],
            stdoutNextOffset=len(process.out),
            stderrNextOffset=len(process.err),
            more=False,
        )

    async def kill(self, request: web.Request) -> web.Response:
        process = self._process(request)
        signaled = process.running
        if process.task is not None and signaled:
            process.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await process.task
        return _ok("command.stopped", processId=process.pid, running=False, signaled=signaled, command=None)

    async def packages(self, request: web.Request) -> web.StreamResponse:
        box, body = self.world.usable(request.match_info["id"]), await request.json()
        box.packages = body["packages"]
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        missing = [p for p in box.packages if p["name"] == "does-not-exist"]
        if missing:
            text = "the package npm:does-not-exist 1.0.0 does not exist"
            await answer.write(
                _line(type="error", error={"code": "package_not_found", "message": text, "status": 404})
            )
            return answer
        await answer.write(_line(type="progress", text="fetching"))
        lying = [
            {
                "package": p,
                "path": f"/opt/mcpiac/{p['registry']}/{p['name']}@{p['version']}",
                "entry": ["node", f"/opt/mcpiac/{p['name']}/index.js"],
                "integrity": "sha512-contract",
                "env": {},
            }
            for p in box.packages
        ]
        await answer.write(_line(type="installed", installed=lying))
        return answer

    async def logs(self, request: web.Request) -> web.StreamResponse:
        self.world.get(request.match_info["id"])
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        for number in range(min(int(request.query.get("tail", "100")), 3)):
            await answer.write(_line(at=stamp(time.time()), stream="stderr", text=f"line {number}"))
        return answer

    # control

    async def order(self, request: web.Request) -> web.Response:
        self.faults.orders += await request.json()
        return web.json_response({})

    async def set_delay(self, request: web.Request) -> web.Response:
        self.delay = (await request.json())["ms"] / 1000
        return web.json_response({})

    async def sent(self, request: web.Request) -> web.Response:
        return web.json_response({"requests": self.log, "peak": self.peak})

    async def forget(self, request: web.Request) -> web.Response:
        self.log.clear()
        self.peak = self.active
        return web.json_response({})

    async def meddle(self, request: web.Request) -> web.Response:
        """Change a sandbox behind everybody's back: ``{"state": …}``, ``{"idle": …}``, ``{"hidden": port}``…"""
        box = self.world.get(request.match_info["id"])
        for name, value in (await request.json()).items():
            if name == "hidden":
                box.hosted.pop(value, None)
            else:
                setattr(box, name, value)
        return web.json_response({})

    async def vanish(self, request: web.Request) -> web.Response:
        self.world.boxes.pop(request.match_info["id"], None)
        return web.json_response({})


def _ok(kind: str, code: int = 200, /, **rest: Any) -> web.Response:
    return web.json_response({"ok": True, "type": kind, **rest}, status=code, headers={"X-Request-Id": "req_ok"})


def _line(**frame: Any) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def _believed(box: Box, command: str) -> bytes | None:
    """The facts that a set-up command would end with; None for another command."""
    path = next((word.strip("'") for word in reversed(command.split()) if ".setup.json" in word), None)
    if path is None or "setup.pyz" not in command:
        return None
    path = f"/home/user/.mcpiac/{path.rsplit('/', 1)[1]}"
    values = json.loads(box.files.get(path, b"{}"))
    facts = {
        "setup": values.get("setup"),
        "changed": True,
        "restarted": True,
        "bridge": values.get("bridge"),
        "packages": [],
        "files": {f["path"]: f["sha256"] for f in values.get("files", []) if "sha256" in f},
        "kept": [],
        "listen": [f"127.0.0.1:{values.get('port')}"],
        "python": "3.11.0",
    }
    return json.dumps({"mcpiac-setup": facts}).encode() + b"\n"


async def serve(options: argparse.Namespace) -> None:
    import socket

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options.port))
    port = listener.getsockname()[1]
    server = Server(options, port)
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    if options.socket:
        Path(options.socket).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await web.UnixSite(runner, options.socket).start()
    print(json.dumps({"port": port, "pid": os.getpid()}), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 4096) or ended.set())
    await ended.wait()
    await runner.cleanup()
    server.folder.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--socket", help="listen on this unix socket too")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--sandboxes", type=int, default=0, help="how many exist already")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="before each call")
    parser.add_argument("--boot-ms", type=float, default=0.0, help="until a new sandbox is ready")
    parser.add_argument("--key", help="ask for this API key")
    parser.add_argument("--cloud", action="store_true", help="without the embedded backend's extensions")
    asyncio.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
