"""Start of the agent, and its requests."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

from . import files
from .commands import Commands
from .frames import PROTOCOL, SOCKET, FrameError
from .loop import Connection, Loop
from .services import BadService, Services
from .spawn import HOME

RUN = "/run/mcpiac"
ENV_FILE = f"{RUN}/env"
READY = b"ready\n"
_SERVICE_COMMAND = """#!/run/mcpiac/bin/python3 -ISE
import sys
sys.path.insert(0, "/run/mcpiac/lib")
from agent.client import main
sys.exit(main(sys.argv[1:]))
"""


class Agent:
    """Answers requests; tells watchers when a service or the number of running commands changed."""

    def __init__(self, loop: Loop, env: dict[str, str]) -> None:
        self._loop = loop
        self._watchers: list[Connection] = []
        self._telling = False
        self.services = Services(loop, env, self._changed)
        self.commands = Commands(loop, env, self._changed)

    def accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        Connection(self._loop, sock, self._request)

    def _request(self, connection: Connection, ask: dict) -> None:  # type: ignore[type-arg]
        try:
            answer = self._answer(connection, ask)
        except files.FileFault as fault:
            answer = {"error": fault.code, "message": str(fault)}
        except LookupError as fault:
            answer = {"error": "not_found", "message": str(fault)}
        except BadService as fault:
            answer = {"error": "bad_service", "message": str(fault)}
        except FrameError as fault:
            answer = {"error": "bad_frame", "message": str(fault)}
        except OSError as fault:
            answer = {"error": "failed", "message": f"{fault.filename or ''}: {fault.strerror}".strip(": ")}
        except (TypeError, ValueError) as fault:
            answer = {"error": "bad_request", "message": str(fault)}
        if answer is not None:
            connection.send(answer, last=True)

    def _answer(self, connection: Connection, ask: dict) -> dict[str, object] | None:  # type: ignore[type-arg]
        """The answer, or None when the connection goes on."""
        op = ask.get("op")
        if op == "run":
            self.commands.run(connection, ask)
            return None
        if op == "follow":
            self.commands.follow(connection, ask)
            return None
        if op == "watch":
            self._watch(connection)
            return None
        if op in ("service.stop", "shutdown"):
            self._stop(connection, ask)
            return None
        if op == "hello":
            return {"protocol": PROTOCOL, "pid": os.getpid()}
        if op == "start":
            return self.commands.start(ask)
        if op == "status":
            return self.commands.status(ask)
        if op == "kill":
            return self.commands.kill(ask)
        if op == "put":
            return files.put(ask)
        if op == "get":
            return files.get(ask)
        if op == "processes":
            return {"processes": _processes()}
        if op == "service.put":
            return self.services.put(ask.get("service"))
        if op == "service.status":
            return {"services": self.services.view()}
        if op == "service.remove":
            return self.services.remove(ask.get("name"))
        if op == "service.restart":
            self.services.find(ask.get("name")).restart()
            return {"restarting": True}
        return {"error": "unknown_op", "message": "the agent knows no such request"}

    def _stop(self, connection: Connection, ask: dict) -> None:  # type: ignore[type-arg]
        def stopped() -> None:
            connection.send({"stopped": True}, last=True)

        if ask.get("op") == "shutdown":
            self.services.stop_all(stopped)
        else:
            self.services.find(ask.get("name")).stop(stopped)

    def _watch(self, connection: Connection) -> None:
        self._watchers.append(connection)
        connection.on_close = lambda: self._watchers.remove(connection)
        connection.send(self._state())

    def _state(self) -> dict[str, object]:
        return {"services": self.services.view(), "commands": self.commands.detached_running}

    def _changed(self) -> None:
        """Tell the watchers, once for all changes of one turn of the loop."""
        if not self._telling:
            self._telling = True
            self._loop.later(0, self._tell)

    def _tell(self) -> None:
        self._telling = False
        for watcher in list(self._watchers):
            watcher.send(self._state())


def _processes() -> list[dict[str, object]]:
    """The processes of the sandbox, from /proc: at most 500."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    found: list[dict[str, object]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or len(found) >= 500:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read(4000).rstrip(b"\0").replace(b"\0", b" ")
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        short = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
        found.append(
            {
                "pid": int(name),
                "parentPid": int(fields[1]),
                "startedAt": booted + int(fields[19]) / ticks,
                "memoryMB": round(int(fields[21]) * page / 1e6, 1),
                "command": (words or short).decode("utf-8", "replace")[:1000],
            }
        )
    return found


def _write(path: str, text: str, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)


def _limit(name: str, value: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def main() -> None:
    """Read the start message (a JSON object) from stdin to its end, be ready, say so on stdout, serve."""
    start = json.loads(sys.stdin.buffer.read())
    env = start["env"]
    for name, value in start.get("limits", {}).items():
        _limit(name, value)
    os.umask(0o022)
    _write(ENV_FILE, json.dumps(env), 0o600)
    _write(f"{RUN}/bin/mcpiac-service", _SERVICE_COMMAND, 0o755)
    os.makedirs(f"{HOME}/.mcpiac", exist_ok=True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(SOCKET)
    listener.listen(64)
    loop = Loop()
    agent = Agent(loop, env)
    loop.watch(listener.fileno(), lambda _events: agent.accept(listener))
    agent.services.load()
    os.write(1, READY)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    loop.run()
