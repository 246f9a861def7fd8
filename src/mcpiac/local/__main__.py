"""``python -m mcpiac.local``: the daemon's start.

It runs itself again with an empty environment before anything else, so that nothing of the caller's (its secrets
above all) can be found in it or reach a sandbox. Exit status: 0 served, or another daemon serves this home already;
1 it cannot start (the reason on stderr); 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

_MARK = "MCPIAC_DAEMON"
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}


def main() -> int:
    options = _parser().parse_args()
    if sys.platform != "linux":
        print("the embedded backend needs Linux", file=sys.stderr)
        return 1
    again = {**_ENVIRONMENT, _MARK: str(os.getpid())}  # the pid stays the same, so nobody else sets it by accident
    if os.environ.get(_MARK) != again[_MARK]:
        words = [sys.executable, "-P", "-m", "mcpiac.local", *sys.argv[1:]]
        os.execve(sys.executable, words, again)  # noqa: S606 - itself, with nothing of the caller's
    home = Path(os.path.abspath(options.home))
    os.chdir("/")
    os.umask(0o077)
    return _serve(options, home)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mcpiac.local", description="The daemon of the embedded backend.")
    parser.add_argument("--home", required=True, help="its folder ($MCPIAC_HOME)")
    parser.add_argument(
        "--detach", action="store_true", help="return when it listens; it goes on in a session of its own"
    )
    parser.add_argument("--listen-tcp", metavar="HOST:PORT", help="listen on this loopback address too")
    parser.add_argument("--key-file", metavar="FILE", help="whose content a request over TCP must carry")
    parser.add_argument(
        "--linger", type=float, default=60.0, metavar="SECONDS", help="leave after so long without a sandbox"
    )
    parser.add_argument(
        "--idle-minute", type=float, default=60.0, metavar="SECONDS", help="for tests: how long it is"
    )
    return parser


def _serve(given: argparse.Namespace, home: Path) -> int:
    from mcpiac.local import daemon

    told: int | None = None
    try:
        tcp, key = _tcp(given.listen_tcp, given.key_file)
        daemon.prepare(home)
        told = _detach() if given.detach else None
        held = daemon.lock(home)
    except daemon.AlreadyRunning:
        return _tell(told, 0, "")
    except (OSError, ValueError) as fault:
        return _tell(told, 1, f"the daemon cannot start: {fault}")
    return _run(daemon.Options(home, tcp, key, given.linger, given.idle_minute), held, told)


def _run(options: object, held: int, told: int | None) -> int:
    import asyncio
    import logging

    from mcpiac.local import daemon

    assert isinstance(options, daemon.Options)
    try:
        daemon.remember_pid(options.home)
        daemon.keep_log(options.home)
        daemon.raise_descriptors()
        asyncio.run(daemon.Daemon(options).run(lambda: _ready(told)))
    except (OSError, ValueError) as fault:
        logging.getLogger("mcpiac.local").exception("the daemon ends")
        return _tell(told, 1, f"the daemon cannot start: {fault}")
    finally:
        (options.home / "run" / "daemon.pid").unlink(missing_ok=True)
        os.close(held)
    return 0


def _tcp(address: str | None, key_file: str | None) -> tuple[tuple[str, int] | None, str | None]:
    if address is None:
        return None, None
    host, _, port = address.rpartition(":")
    if host not in ("127.0.0.1", "localhost") or not port.isdigit():
        raise ValueError("--listen-tcp takes 127.0.0.1:PORT")
    if key_file is None:
        raise ValueError("--listen-tcp needs --key-file")
    key = Path(key_file).read_text(encoding="utf-8").strip()
    if len(key) < 16:
        raise ValueError("the key must have at least 16 characters")
    return ("127.0.0.1", int(port)), key


def _detach() -> int:
    """Fork twice, into a session of its own. The first process waits for word and ends with it; the last goes on,
    and gets where to say it."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        word = b""
        while piece := os.read(read, 4096):
            word += piece
        if word[:1] == b"0":
            os._exit(0)
        sys.stderr.write(word[1:].decode("utf-8", "replace") or "the daemon ended without a word\n")
        sys.stderr.flush()
        os._exit(1)
    os.close(read)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    return write


def _ready(told: int | None) -> None:
    if told is not None:
        os.write(told, b"0")
        os.close(told)


def _tell(told: int | None, status: int, text: str) -> int:
    if told is not None:
        try:
            os.write(told, f"{status}{text}\n".encode())
            os.close(told)
        except OSError:
            return status  # it was told already
    elif text:
        print(text, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
