"""``mcpiac unlock``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac unlock 3f2a9c1b", "mcpiac unlock -y 3f2a9c1b")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the lock's id, as the refused run named it")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands.ask import agreed
    from mcpiac.state.disk import Disk
    from mcpiac.state.lock import holder_path, holders
    from mcpiac.state.store import Store, unlock

    store = Store(context.project().root / "state")
    held = holders(Disk(), store.folder)
    found = next((stack for stack, holder in held.items() if holder.id == args.id), None)
    if found is None:
        told = "; ".join(f"{stack}: {holder.id}, {holder}" for stack, holder in held.items()) or "no stack is locked"
        raise error("not-that-lock", f"there is no lock {args.id}: {told}")
    context.screen.result(f"{found} is locked by {held[found]} ({holder_path(store.folder, found)}).")
    if not agreed(context.screen, args.yes, "If that run still goes on, it stops at its next step"):
        return 1
    unlock(store, found, args.id)
    context.screen.result(f"{found} is unlocked.")
    return 0
