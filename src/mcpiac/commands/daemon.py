"""``mcpiac daemon``."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from typing import TYPE_CHECKING

from mcpiac.commands import flags
from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.providers.daemon import Daemon

EXAMPLES = ("mcpiac daemon status", "mcpiac daemon logs --tail 20")
STOP_SECONDS = 20.0


def configure(parser: ArgumentParser) -> None:
    does = parser.add_subparsers(dest="does", metavar="ACTION", required=True)
    does.add_parser("start", help="start it where it does not run")
    does.add_parser("stop", help="end it; sandboxes go on running, their URLs answer again when it is back")
    state = does.add_parser("status", help="whether it runs, and what it looks after")
    state.add_argument("--json", action="store_true", help="as one JSON object")
    logs = does.add_parser("logs", help="its own log")
    logs.add_argument("--tail", metavar="N", type=flags.positive, default=100, help="the last N lines (default: 100)")
    does.add_parser("gc", help="remove stored packages that no sandbox uses")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.providers.daemon import Daemon

    daemon = Daemon(context.environ)
    with contextlib.closing(daemon):
        code: int = globals()[f"_{args.does}"](args, context, daemon)
    return code


def _start(args: Namespace, context: Context, daemon: Daemon) -> int:
    from mcpiac.commands.loop import Loop

    if daemon.listens():
        context.screen.result("The daemon runs already.")
        return 0
    with Loop() as loop:
        loop.run(daemon.ensure())
    context.screen.result(f"The daemon runs, its data is in {daemon.home}.")
    return 0


def _stop(args: Namespace, context: Context, daemon: Daemon) -> int:
    pid = listening_pid(daemon)
    if pid is None:
        context.screen.result("The daemon does not run.")
        return 0
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        context.screen.result("The daemon has just ended.")
        return 0
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended, _, _ = select.select([process], [], [], STOP_SECONDS)
    except PermissionError as fault:
        raise error("daemon-not-yours", f"the daemon (process {pid}) belongs to another user") from fault
    finally:
        os.close(process)
    if not ended:
        hint = "`mcpiac daemon logs` tells what it is doing."
        raise error(
            "daemon-not-stopping", f"the daemon (process {pid}) did not end in {STOP_SECONDS:.0f} s", hint=hint
        )
    context.screen.result(
        "The daemon has ended. What runs in sandboxes goes on; `mcpiac daemon start` brings URLs back."
    )
    return 0


def _status(args: Namespace, context: Context, daemon: Daemon) -> int:
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import json_lines
    from mcpiac.ui.words import count

    pid = listening_pid(daemon)
    body: dict[str, object] = {"running": pid is not None, "pid": pid, "home": str(daemon.home)}
    if pid is not None:
        with Loop() as loop:
            body |= loop.run(_ask(context))
    if args.json:
        context.screen.result(json_lines.encode("daemon", body))
    elif pid is None:
        context.screen.result(f"The daemon does not run. Its data is in {daemon.home}.")
    else:
        boxes = count(int(str(body["sandboxes"])), "sandbox", "sandboxes")
        told = f"The daemon runs: process {pid}, {boxes}, instance {body['instance']}."
        context.screen.result(f"{told}\nIts data is in {daemon.home}.")
    return 0


async def _ask(context: Context) -> dict[str, object]:
    from mcpiac.commands import view
    from mcpiac.providers import registry

    async with registry.connect("local", environ=context.environ, start_daemon=False) as provider:
        with view.told("the daemon"):
            instance = await provider.instance()
            live = await provider.refresh(())
    return {"instance": instance.id, "sandboxes": len(live.sandboxes)}


def _logs(args: Namespace, context: Context, daemon: Daemon) -> int:
    from mcpiac.ui import escape

    for path in (daemon.home / "run" / "start.log", daemon.home / "log" / "daemon.log"):
        with contextlib.suppress(FileNotFoundError):
            lines = path.read_text("utf-8", "replace").splitlines()[-args.tail :]
            if lines:
                context.screen.result("\n".join(escape.block(line) for line in lines))
    return 0


def _gc(args: Namespace, context: Context, daemon: Daemon) -> int:
    from mcpiac.commands.loop import Loop
    from mcpiac.ui import escape
    from mcpiac.ui.words import count

    with Loop() as loop:
        removed = loop.run(_collect(context))
    for name in removed:
        context.screen.result(f"removed {escape.line(name)}")
    context.screen.result(f"{count(len(removed), 'stored package')} removed.")
    return 0


async def _collect(context: Context) -> list[str]:
    from mcpiac.commands import view
    from mcpiac.providers import local, registry

    async with local.connect(registry.traits("local"), context.environ, start_daemon=True) as provider:
        with view.told("the daemon"):
            return await provider.collect()


def listening_pid(daemon: Daemon) -> int | None:
    """The process that listens on the daemon's socket, as the kernel names it (unix(7), SO_PEERCRED)."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(daemon.socket)
            found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    return int(struct.unpack("3i", found)[0])
