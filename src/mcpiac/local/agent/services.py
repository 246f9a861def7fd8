"""Services: programs that are kept up. Their definitions lie on the sandbox's own disk, so that they come back
whenever its process tree is started again."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable

from .log import Log, stamp
from .loop import Loop, Timer
from .spawn import BASE_ENV, HOME, ended, kill_tree, spawn

DEFINITIONS = f"{HOME}/.mcpiac/services"
LOGS = f"{HOME}/.mcpiac/log"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
FIRST_WAIT = 0.2
LONGEST_WAIT = 30.0
"""Seconds before a service that ended is started again: doubled each time, from the first to the longest."""
STEADY = 10.0
"""Seconds after which a service counts as up: the next wait is the first one again."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_LAST_READS = 64
"""Reads of 64 KiB from each pipe after the end; what a surviving child writes later still reaches the log."""
_REFERENCE = re.compile(r"\$\$\{|\$\{secret\.([A-Za-z_][A-Za-z0-9_]*)\}")


class BadService(ValueError):
    """A definition that cannot be run, and why; never with a secret's value."""


def check(definition: object) -> dict:  # type: ignore[type-arg]
    """A definition with its defaults filled in; raises BadService."""
    if not isinstance(definition, dict):
        raise BadService("a service is a JSON object")
    name, argv = definition.get("name"), definition.get("argv")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadService("name must be lower-case letters, digits and hyphens, at most 64")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise BadService("argv must be a non-empty list of texts")
    env, taken = definition.get("env") or {}, definition.get("pass") or []
    if not isinstance(env, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
        raise BadService("env must map names to texts")
    if not isinstance(taken, list) or not all(isinstance(each, str) for each in taken):
        raise BadService("pass must be a list of names")
    cwd = definition.get("cwd") or HOME
    if not isinstance(cwd, str):
        raise BadService("cwd must be a path")
    return {**definition, "name": name, "argv": argv, "env": env, "pass": taken, "cwd": cwd}


def fill(text: str, secrets: dict[str, str]) -> str:
    """``${secret.NAME}`` replaced, ``$${`` made ``${``; raises BadService for a name that is not there."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "${"
        if name not in secrets:
            raise BadService(f"there is no secret {name} in this sandbox")
        return secrets[name]

    return _REFERENCE.sub(value, text)


class Service:
    """One service. State: starting, running, backoff, failed (its definition cannot be run), stopped."""

    def __init__(self, loop: Loop, definition: dict, secrets: dict[str, str], changed: Callable[[], None]) -> None:  # type: ignore[type-arg]
        self._loop = loop
        self._secrets = secrets
        self._changed = changed
        self._timer: Timer | None = None
        self._pipes: dict[int, str] = {}
        self._wait = FIRST_WAIT
        self._up_at = 0.0
        self._after_stop: list[Callable[[], None]] = []
        self.definition = definition
        self.log = Log(f"{LOGS}/{definition['name']}.log")
        self.state = "stopped"
        self.pid: int | None = None
        self.restarts = 0
        self.last_exit: str | None = None
        self.since = time.time()

    def view(self) -> dict[str, object]:
        troubled = self.state in ("backoff", "failed") or self.restarts > 0
        return {
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "lastExit": self.last_exit,
            "since": stamp(self.since),
            "lastLines": list(self.log.last) if troubled else [],
        }

    def start(self) -> None:
        """Start it unless it runs; the wait and the count of restarts begin anew."""
        if self.pid is not None:
            if self.state == "stopped":
                self._after_stop.append(self.start)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wait = FIRST_WAIT
        self.restarts = 0
        self.last_exit = None
        self._launch()

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """SIGTERM, after a grace SIGKILL; ``then`` is called when it is down."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.pid is None:
            self._become("stopped")
            if then is not None:
                then()
            return
        if then is not None:
            self._after_stop.append(then)
        if self.state != "stopped":
            self._become("stopped")
            kill_tree(self.pid, signal.SIGTERM)
            self._timer = self._loop.later(GRACE, self._kill)

    def restart(self) -> None:
        self.stop(self.start)

    def _kill(self) -> None:
        if self.pid is not None:
            kill_tree(self.pid, signal.SIGKILL)

    def _launch(self) -> None:
        self._timer = None
        self._become("starting")
        definition = self.definition
        try:
            missing = [name for name in definition["pass"] if name not in self._secrets]
            if missing:
                raise BadService(f"there is no secret {missing[0]} in this sandbox")
            env = BASE_ENV | {k: fill(v, self._secrets) for k, v in definition["env"].items()}
            env |= {name: self._secrets[name] for name in definition["pass"]}
            argv = [fill(word, self._secrets) for word in definition["argv"]]
        except BadService as fault:
            self.last_exit = str(fault)
            self.log.say(f"cannot start: {fault}")
            self._become("failed")
            return
        try:
            pid, out, err = spawn(argv, env, definition["cwd"])
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            self.last_exit = f"cannot start {definition['argv'][0]}: {why}"
            self.log.say(self.last_exit)
            self._back_off()
            return
        self.pid = pid
        self._up_at = time.monotonic()
        self.log.say(f"started, pid {pid}")
        self._listen("stdout", out)
        self._listen("stderr", err)
        self._loop.on_exit(pid, lambda status: self._exited(pid, status))
        self._become("running")

    def _listen(self, stream: str, fd: int) -> None:
        self._pipes[fd] = stream
        self._loop.watch(fd, lambda _events: self._read(fd))

    def _read(self, fd: int) -> bool:
        """Log what the pipe holds; True when there may be more at once."""
        try:
            data = os.read(fd, 64 * 1024)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self.log.write(self._pipes[fd], data)
            return True
        self._loop.unwatch(fd)
        os.close(fd)
        del self._pipes[fd]
        return False

    def _exited(self, pid: int, status: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)  # what its group left behind would hold its port
        except OSError:
            pass
        for fd in list(self._pipes):
            for _ in range(_LAST_READS):
                if not self._read(fd):
                    break
        code, name = ended(status)
        self.log.end()
        self.last_exit = f"killed by {name}" if name else f"exit code {code}"
        self.log.say(f"ended: {self.last_exit}")
        self.pid = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.state == "stopped":
            self._changed()
            waiting, self._after_stop = self._after_stop, []
            for then in waiting:
                then()
            return
        if time.monotonic() - self._up_at >= STEADY:
            self._wait = FIRST_WAIT
        self._back_off()

    def _back_off(self) -> None:
        self.restarts += 1
        self._timer = self._loop.later(self._wait, self._launch)
        self._wait = min(self._wait * 2, LONGEST_WAIT)
        self._become("backoff")

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.since = time.time()
            self._changed()


class Services:
    """All services of the sandbox. ``changed`` is called when any of them has."""

    def __init__(self, loop: Loop, secrets: dict[str, str], changed: Callable[[], None]) -> None:
        self._loop = loop
        self._secrets = secrets
        self._changed = changed
        self._services: dict[str, Service] = {}

    def view(self) -> dict[str, object]:
        return {name: service.view() for name, service in self._services.items()}

    def load(self) -> None:
        """Start what is defined on the disk."""
        try:
            names = sorted(os.listdir(DEFINITIONS))
        except OSError:
            return
        for name in names:
            if not name.endswith(".json"):
                continue
            try:
                with open(f"{DEFINITIONS}/{name}", encoding="utf-8") as file:
                    definition = check(json.load(file))
            except (OSError, ValueError) as fault:
                Log(f"{LOGS}/{name[:-5]}.log").say(f"the definition cannot be read: {fault}")
                continue
            self._add(definition).start()

    def put(self, definition: object) -> dict[str, object]:
        """Define a service and start it; a changed definition restarts it, the same one changes nothing."""
        wanted = check(definition)
        known = self._services.get(wanted["name"])
        changed = known is None or known.definition != wanted
        if changed:
            os.makedirs(DEFINITIONS, exist_ok=True)
            path = f"{DEFINITIONS}/{wanted['name']}.json"
            with open(f"{path}.new", "w", encoding="utf-8", opener=_private) as file:
                json.dump(wanted, file, indent=1)
            os.replace(f"{path}.new", path)
        if known is None:
            self._add(wanted).start()
        elif changed:
            known.definition = wanted
            known.restart()
        else:
            known.start()
        return {"changed": changed, **self._services[wanted["name"]].view()}

    def find(self, name: object) -> Service:
        """Raises LookupError."""
        service = self._services.get(name) if isinstance(name, str) else None
        if service is None:
            raise LookupError("no such service")
        return service

    def remove(self, name: object) -> dict[str, object]:
        """Stop it and forget its definition; its log stays."""
        service = self.find(name)
        del self._services[service.definition["name"]]
        try:
            os.unlink(f"{DEFINITIONS}/{service.definition['name']}.json")
        except FileNotFoundError:
            pass
        service.stop(service.log.close)
        self._changed()
        return {"removed": True}

    def stop_all(self, then: Callable[[], None]) -> None:
        """Stop every service, then call."""
        left = {name for name, service in self._services.items() if service.pid is not None}

        def stopped(name: str) -> None:
            left.discard(name)
            if not left:
                then()

        if not left:
            then()
        for name in list(left):
            self._services[name].stop(lambda name=name: stopped(name))  # type: ignore[misc]

    def _add(self, definition: dict) -> Service:  # type: ignore[type-arg]
        service = Service(self._loop, definition, self._secrets, self._changed)
        self._services[definition["name"]] = service
        return service


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
