"""``mcpiac state``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.model.record import State
    from mcpiac.state.store import Store
    from mcpiac.state.surgery import Proposal

EXAMPLES = ("mcpiac state list", "mcpiac state rollback demo 12")


def configure(parser: ArgumentParser) -> None:
    does = parser.add_subparsers(dest="does", metavar="ACTION", required=True)
    one = does.add_parser("list", help="every recorded server, its sandbox and its URL")
    one.add_argument("stack", metavar="STACK", nargs="?", help="a recorded stack (default: all)")
    one = does.add_parser("show", help="all that is recorded of a server, as JSON")
    one.add_argument("server", metavar="STACK/SERVER", help="the server")
    one = does.add_parser("mv", help="a recorded server goes on under another name")
    one.add_argument("server", metavar="STACK/SERVER", help="the server")
    one.add_argument("name", metavar="NAME", help="its new name in the stack")
    _yes(one)
    one = does.add_parser("rm", help="forget a server; its sandbox goes on running")
    one.add_argument("server", metavar="STACK/SERVER", help="the server")
    _yes(one)
    one = does.add_parser("history", help="the copies of earlier states")
    one.add_argument("stack", metavar="STACK", help="a recorded stack")
    one = does.add_parser("rollback", help="put an earlier state in the place of the present one")
    one.add_argument("stack", metavar="STACK", help="a recorded stack")
    one.add_argument("serial", metavar="SERIAL", type=int, help="which, as `history` lists them")
    one.add_argument("--force", action="store_true", help="even if it is of another lineage")
    _yes(one)
    one = does.add_parser("check", help="look for damage in the files of the state")
    one.add_argument("stack", metavar="STACK", nargs="?", help="a recorded stack (default: all)")
    one = does.add_parser("repair", help="mend what can be mended without guessing")
    one.add_argument("stack", metavar="STACK", help="a recorded stack")
    _yes(one)


def run(args: Namespace, context: Context) -> int:
    from mcpiac.state.store import Store

    store = Store(context.project().root / "state")
    code: int = globals()[f"_{args.does}"](args, context, store)
    return code


def _yes(parser: ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _list(args: Namespace, context: Context, store: Store) -> int:
    rows = []
    for stack in [args.stack] if args.stack else store.names():
        for name, server in sorted(_state(store, stack).servers.items()):
            box = _state(store, stack).sandboxes[server.sandbox]
            rows.append((f"{stack}/{name}", box.id, server.hosted.url if server.hosted else "–"))
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(2)]
    for address, id, url in rows:
        context.screen.result(f"{address:<{widths[0]}}  {id:<{widths[1]}}  {url}")
    return 0


def _show(args: Namespace, context: Context, store: Store) -> int:
    import json

    from mcpiac.model.codec import plain

    stack, name = _split(args.server)
    state = _state(store, stack)
    server = state.servers.get(name)
    if server is None:
        raise error("no-such-server", f"{name} is not recorded in {stack}", hint="mcpiac state list")
    data = {"server": plain(server), "sandbox": plain(state.sandboxes[server.sandbox])}
    context.screen.result(json.dumps(data, indent=2, ensure_ascii=False))
    return 0


def _mv(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.commands.ask import agreed
    from mcpiac.commands.loop import Loop
    from mcpiac.state.edits import move

    stack, name = _split(args.server)
    with store.lock(stack, "state mv") as session, Loop() as loop:
        if not agreed(context.screen, args.yes, f"{stack}/{name} will be recorded as {stack}/{args.name}"):
            return 1
        loop.run(move(session.journal, name, args.name))
    context.screen.result(f"{stack}/{name} is {stack}/{args.name} now.")
    return 0


def _rm(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.commands.ask import agreed
    from mcpiac.commands.loop import Loop
    from mcpiac.state.edits import remove

    stack, name = _split(args.server)
    with store.lock(stack, "state rm") as session, Loop() as loop:
        if not agreed(context.screen, args.yes, f"{stack}/{name} will be forgotten; its sandbox goes on running"):
            return 1
        box = loop.run(remove(session.journal, name))
    again = f" `mcpiac adopt {stack}/{name} {box.id}` takes it in again." if box else ""
    context.screen.result(f"{stack}/{name} is forgotten.{again}")
    return 0


def _history(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.state.surgery import kept

    for one in kept(store, args.stack):
        context.screen.result(f"{one.serial:>8}  {one.digest}  {one.path}")
    return 0


def _rollback(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.state.surgery import rollback

    return _put(args, context, store, rollback(store, args.stack, args.serial, force=args.force))


def _check(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.state.surgery import findings
    from mcpiac.ui import diagnostics

    found = [one for stack in ([args.stack] if args.stack else store.names()) for one in findings(store, stack)]
    if found:
        context.screen.tell(diagnostics.render(found, context.screen.colour_err, ""))
    if any(one.severity == "error" for one in found):
        return 1
    context.screen.result("The state can be read, and its rules hold.")
    return 0


def _repair(args: Namespace, context: Context, store: Store) -> int:
    from mcpiac.state.surgery import repair

    proposal = repair(store, args.stack)
    if proposal is None:
        context.screen.result("Nothing is wrong with it.")
        return 0
    return _put(args, context, store, proposal)


def _put(args: Namespace, context: Context, store: Store, proposal: Proposal) -> int:
    from mcpiac.commands.ask import agreed
    from mcpiac.state.surgery import write

    for line in proposal.says:
        context.screen.result(f"  {line}")
    if not agreed(context.screen, args.yes, f"The state of {args.stack} will be replaced"):
        return 1
    aside = write(store, args.stack, proposal, f"state {args.does}")
    context.screen.result(f"Done; what was there is in {aside}. Look at it with `mcpiac plan`.")
    return 0


def _state(store: Store, stack: str) -> State:
    state = store.read(stack)
    if state is None:
        raise error("no-such-state", f"nothing is recorded of a stack {stack}", hint="mcpiac state list")
    return state


def _split(address: str) -> tuple[str, str]:
    stack, slash, name = address.partition("/")
    if not slash or not name:
        raise error("usage", f"`{address}` is not STACK/SERVER", hint="mcpiac state list")
    return stack, name
