"""A run while it runs: on a terminal one line per server updated in place, elsewhere one line per finished action."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mcpiac.model.action import Action
from mcpiac.model.event import (
    ActionDone,
    ActionFailed,
    ActionProgress,
    ActionRetrying,
    ActionSkipped,
    ActionStarted,
    Event,
    RunFinished,
    RunStarted,
)
from mcpiac.ui import escape, json_lines
from mcpiac.ui.screen import Screen, paint
from mcpiac.ui.words import span

Renderer = Callable[[Event], None]


class JsonLines:
    """Every event as one JSON line on stdout."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, event: Event) -> None:
        self._screen.result(json_lines.event(event))

    def close(self) -> None:
        """Nothing is held back."""


class Lines:
    """One line per finished action on stderr; a retry and a failure say why."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._wide = 0

    def __call__(self, event: Event) -> None:
        text = self._text(event)
        if text:
            self._screen.tell(text)

    def _text(self, event: Event) -> str:
        colour = self._screen.colour_err
        match event:
            case RunStarted():
                self._wide = max((escape.width(a.server) for a in event.actions), default=0)
            case ActionDone(action=action):
                if action.verb == "record":
                    return ""
                note = _first(event.note or action.summary)
                return f"  {paint('✓', 'green', colour)} {self._name(action)} {note:<44} {span(event.seconds):>7}"
            case ActionFailed(action=action):
                word = f"{'in doubt' if event.in_doubt else 'failed'} after {span(event.seconds)}"
                why = _first(f"{word}: {_without_verb(event)}", 74 - escape.width(self._name(action)))
                return f"  {paint('✗', 'red', colour)} {self._name(action)} {why}"
            case ActionRetrying(action=action):
                why = f"again in {span(event.wait)} (try {event.attempt + 1}): {_first(event.why)}"
                return f"  {paint('↻', 'yellow', colour)} {self._name(action)} {why}"
            case ActionSkipped(action=action):
                return f"  – {self._name(action)} not tried ({escape.line(event.because)})"
        return ""

    def _name(self, action: Action) -> str:
        server = escape.line(action.server)
        return f"{server}{' ' * (self._wide - escape.width(server))}  {action.verb:<8}"

    def close(self) -> None:
        """Nothing is held back."""


class Live:
    """One line per server, updated in place: what runs now, for how long, and the last line of its output."""

    def __init__(self, screen: Screen) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._screen = screen
        self._rows: dict[str, _Row] = {}
        console = Console(file=screen.err, no_color=not screen.colour_err, highlight=False, markup=False, emoji=False)
        self._live = RichLive(
            console=console,
            refresh_per_second=8,
            get_renderable=self._picture,
            redirect_stderr=False,
            redirect_stdout=False,
            vertical_overflow="ellipsis",
        )
        self._running = False

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                for action in event.actions:
                    row = self._rows.setdefault(action.server, _Row())
                    row.total += action.verb != "record"
                self._live.start()
                self._running = True
            case ActionStarted(action=action):
                self._row(action).start(action.verb, action.summary)
            case ActionProgress(action=action):
                self._row(action).last = event.text
            case ActionRetrying(action=action):
                self._row(action).last = f"again in {span(event.wait)}: {event.why}"
            case ActionDone(action=action):
                self._row(action).finish(action, event.note)
            case ActionFailed(action=action):
                word = "in doubt" if event.in_doubt else "failed"
                self._row(action).fail(f"{action.verb} {word}: {_without_verb(event)}")
            case ActionSkipped(action=action):
                self._row(action).skipped += 1
            case RunFinished():
                self.close()

    def close(self) -> None:
        """Leave the last picture standing and give the terminal back."""
        if self._running:
            self._running = False
            self._live.stop()

    def _row(self, action: Action) -> _Row:
        return self._rows.setdefault(action.server, _Row())

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        colours = {"✓": "green", "✗": "red", "–": "dim"}
        wide = max((escape.width(name) for name in self._rows), default=0)
        lines = []
        for server, row in self._rows.items():
            symbol, count, text = row.picture()
            name = escape.line(server)
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"  {symbol}", style=colours.get(symbol, "yellow"))
            line.append(f" {name}{' ' * (wide - escape.width(name))}  ")
            line.append(f"{count:<5}", style="dim")
            line.append(escape.line(text))
            lines.append(line)
        return Group(*lines)


class _Row:
    """One server's line."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.skipped = 0
        self.verb = ""
        self.summary = ""
        self.last = ""
        self.failure = ""
        self.began = time.monotonic()

    def start(self, verb: str, summary: str) -> None:
        self.verb, self.summary, self.last, self.began = verb, summary, "", time.monotonic()

    def finish(self, action: Action, note: str) -> None:
        self.done += action.verb != "record"
        self.verb, self.last = "", note

    def fail(self, why: str) -> None:
        self.verb, self.failure = "", why

    def picture(self) -> tuple[str, str, str]:
        """Symbol, how many of how many, what now."""
        count = f"{self.done}/{self.total}" if self.total else ""
        if self.failure:
            return "✗", count, self.failure
        if self.verb:
            for_long = span(max(0.1, time.monotonic() - self.began))
            return "…", count, f"{self.verb:<8} {for_long:>7}  {self.last or self.summary}"
        if self.total and self.done >= self.total:
            return "✓", count, self.last
        if self.skipped:
            return "–", count, "not tried"
        return " ", count, "waits" if not self.done else ""


def _first(text: str, columns: int = 44) -> str:
    return escape.cut(escape.line(text.strip().split("\n", 1)[0]), columns)


def _without_verb(event: ActionFailed) -> str:
    return event.diagnostic.summary.removeprefix(f"{event.action.verb}: ")


def choose(screen: Screen, *, as_json: bool) -> JsonLines | Lines | Live:
    """The renderer for these streams."""
    if as_json:
        return JsonLines(screen)
    return Live(screen) if screen.live else Lines(screen)


def guarded(renderer: Renderer) -> Renderer:
    """A renderer whose faults never reach the run: after the first it is silent."""
    broken = False

    def emit(event: Event) -> None:
        nonlocal broken
        if broken:
            return
        try:
            renderer(event)
        except Exception:
            broken = True

    return emit
