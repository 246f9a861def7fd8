"""The question before something is changed by hand: only ``yes`` goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpiac.model.diagnostic import error

if TYPE_CHECKING:
    from mcpiac.ui.screen import Screen


def agreed(screen: Screen, yes: bool, what: str) -> bool:
    """Whether the user agrees; ``yes`` is ``-y``. Raises ``Diagnosed`` where nobody can be asked."""
    if yes:
        return True
    if not screen.asks:
        said = f"{what} waits for a yes, and there is no terminal to ask on; nothing was changed"
        raise error("needs-confirmation", said, hint="add -y")
    screen.err.write(f"\n{what}. Go on? Only `yes` does: ")
    screen.err.flush()
    try:
        answer = input().strip()
    except EOFError:
        answer = ""
    if answer != "yes":
        screen.tell("Nothing was changed.")
    return answer == "yes"
