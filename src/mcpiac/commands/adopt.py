"""``mcpiac adopt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context

EXAMPLES = ("mcpiac adopt demo/files sbx_3k9", "mcpiac adopt -y demo/files sbx_3k9 && mcpiac plan demo")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("server", metavar="STACK/SERVER", help="the declared server that it becomes")
    parser.add_argument("id", metavar="ID", help="the provider's id of the sandbox")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.commands import view
    from mcpiac.commands.ask import agreed
    from mcpiac.commands.choose import choose
    from mcpiac.commands.held import held
    from mcpiac.planner import choose as planned
    from mcpiac.state.edits import adopt
    from mcpiac.state.store import Store

    stack, _, server = args.server.partition("/")
    project = context.project()
    store = Store(project.root / "state")
    (chosen,) = choose(project, store, [stack]).chosen
    spec = chosen.stack.servers.get(server) if chosen.stack else None
    if spec is None:
        raise error("no-such-server", f"{stack} declares no server {server}", hint="declare it, then adopt it")
    with held(context, "adopt", project, store, {stack: None}) as hands:
        place = view.provider_name(chosen, hands.states[stack])
        assert place is not None
        hands.connect({stack: place})
        provider, state = hands.providers[place], hands.states[stack]
        with view.told(f"sandbox {args.id}"):
            found, instance = hands.loop.run(provider.get(args.id)), hands.loop.run(provider.instance())
        said = f"{found.id} ({found.name or 'no name'}, {found.state}, marker {found.owner or 'unknown or none'})"
        context.screen.result(f"  {said}")
        if not agreed(context.screen, args.yes, f"It will be {stack}/{server}, and the next apply sets it up anew"):
            return 1
        others = {name: store.read(name) for name in store.names() if name != stack}
        taken = view.taken_variables(stack, choose(project, store, []), {stack: state}, others)
        work = adopt(
            hands.sessions[stack].journal,
            server,
            found,
            instance,
            key=view.new_id(),
            variable=planned.Names(state, taken).variable(server),
            port=planned.port(spec, None),
        )
        hands.loop.run(work)
    context.screen.result(f"{found.id} is {stack}/{server} now. See what apply would set: mcpiac plan {stack}")
    return 0
