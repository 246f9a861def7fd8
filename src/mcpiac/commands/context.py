"""What every command is handed: the streams, the environment, and where the user stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcpiac.ui.screen import Screen

if TYPE_CHECKING:
    from mcpiac.stack.project import Project


@dataclass(slots=True)
class Context:
    """``chdir`` is what ``-C`` named, as typed."""

    screen: Screen
    environ: Mapping[str, str]
    cwd: Path
    chdir: Path | None = None

    def project(self) -> Project:
        """The project folder; ``Diagnosed`` where there is none."""
        from mcpiac.stack.project import find

        return find(self.cwd, self.chdir)
