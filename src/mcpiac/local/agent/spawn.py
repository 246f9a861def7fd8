"""Start a program in a session of its own, and end it with everything that it started."""

from __future__ import annotations

import os
import signal

HOME = "/home/user"
PATH = "/run/mcpiac/bin:/opt/node/bin:/usr/local/bin:/usr/bin:/bin"
BASE_ENV = {"PATH": PATH, "HOME": HOME, "USER": "user", "LOGNAME": "user", "LANG": "C.UTF-8", "SHELL": "/bin/sh"}


def spawn(argv: list[str], env: dict[str, str], cwd: str) -> tuple[int, int, int]:
    """Fork and exec; returns pid and the read ends (non-blocking) of its stdout and stderr; its stdin is empty.

    Raises the OSError of chdir or exec, so that "no such program" is told apart from a program that ended.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    told_read, told_write = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out_write, 1)
            os.dup2(err_write, 2)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)  # noqa: S606 - what the sandbox is for
        except OSError as fault:
            os.write(told_write, str(fault.errno or 0).encode())
        except BaseException:
            os.write(told_write, b"22")
        finally:
            os._exit(127)
    for fd in (out_write, err_write, told_write):
        os.close(fd)
    told = os.read(told_read, 16)
    os.close(told_read)
    if told:
        os.close(out_read)
        os.close(err_read)
        os.waitpid(pid, 0)
        raise OSError(int(told), os.strerror(int(told)), argv[0])
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return pid, out_read, err_read


def descendants(pid: int) -> list[int]:
    """A process and all that descend from it, from the outside in."""
    found = [pid]
    for each in found:
        try:
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children", "rb") as file:
                    found += [int(word) for word in file.read().split()]
        except OSError:
            continue
    return found


def kill_tree(pid: int, number: int) -> None:
    """Send a signal to a process, its group and every descendant, also those in sessions of their own."""
    tree = descendants(pid)
    try:
        os.killpg(pid, number)
    except OSError:
        pass
    for each in tree:
        try:
            os.kill(each, number)
        except OSError:
            pass


def ended(status: int) -> tuple[int, str | None]:
    """A wait status as exit code and signal name; a signal N counts as exit code 128 + N, like a shell's."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code, None
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return 128 - code, name
