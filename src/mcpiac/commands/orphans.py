"""``mcpiac destroy --orphans``: what is ours by its marker and stands in no record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpiac.commands.context import Context


def run(context: Context, names: Sequence[str], *, yes: bool) -> int:
    """Delete them, after showing them. Under the lock, so that none is one that a run is just making."""
    from mcpiac.commands import view
    from mcpiac.commands.ask import agreed
    from mcpiac.commands.choose import choose
    from mcpiac.commands.held import held
    from mcpiac.executor.orphans import find
    from mcpiac.state.store import Store

    project = context.project()
    store = Store(project.root / "state")
    choice = choose(project, store, names, destroy=True)
    with held(context, "destroy --orphans", project, store, {c.name: None for c in choice.chosen}) as hands:
        places = {c.name: view.provider_name(c, hands.states[c.name]) for c in choice.chosen}
        hands.connect({name: place for name, place in places.items() if place is not None})
        live = hands.look()
        found = [
            (place, one) for name, place in hands.places.items() for one in find(hands.states[name], live[place])
        ]
        if not found:
            context.screen.result("There are no orphans.")
            return 0
        for place, one in found:
            context.screen.result(f"  {place}  {one.id}  {one.name or '–'}  {one.owner}")
        if not agreed(context.screen, yes, f"{len(found)} sandboxes will be deleted, their disks too"):
            return 1
        for place, one in found:
            with view.told(f"sandbox {one.id}"):
                hands.loop.run(hands.providers[place].delete(one.id))
            context.screen.result(f"{one.id} is deleted.")
    return 0
