"""What may start now, what is done, what waits and why. Pure: it knows actions and edges, nothing of providers.

Of the actions that are ready, those with the longest way to go come first, so that many chains go on side by side and
the last of them does not start last.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mcpiac.model.action import Action


@dataclass(frozen=True, slots=True)
class Skipped:
    """An action that will not be tried, and the failed one that it waited for."""

    action: Action
    because: Action


class Schedule:
    """One run's actions. ``done`` are ids that an earlier run of the same plan has done."""

    def __init__(self, actions: Sequence[Action], done: Collection[str] = ()) -> None:
        todo = [action for action in actions if action.id not in done]
        self._place = {action.id: place for place, action in enumerate(todo)}
        self._actions = {action.id: action for action in todo}
        if len(self._actions) != len(todo):
            raise ValueError("two actions of a plan have one id")
        self._waits = {a.id: {other for other in a.after if other in self._actions} for a in todo}
        self._followers: dict[str, list[str]] = {a.id: [] for a in todo}
        for action in todo:
            for other in self._waits[action.id]:
                self._followers[other].append(action.id)
        self._left = self._lengths()
        self._ready: list[tuple[int, int, str]] = []
        for action in todo:
            self._offer(action.id)

    @property
    def ready(self) -> bool:
        """Whether an action could be taken."""
        return bool(self._ready)

    def take(self) -> Action | None:
        """The next action to start; None when none is ready."""
        if not self._ready:
            return None
        _, _, id = heapq.heappop(self._ready)
        return self._actions[id]

    def done(self, action: Action) -> None:
        """It went well: what waited for it alone is ready now."""
        del self._actions[action.id]
        for follower in self._followers[action.id]:
            if follower in self._actions:
                self._waits[follower].discard(action.id)
                self._offer(follower)

    def failed(self, action: Action) -> list[Skipped]:
        """It did not: everything that depends on it is skipped, and nothing else."""
        del self._actions[action.id]
        skipped: list[Skipped] = []
        due = list(self._followers[action.id])
        while due:
            id = due.pop(0)
            gone = self._actions.pop(id, None)
            if gone is not None:
                skipped.append(Skipped(gone, action))
                due += self._followers[id]
        return skipped

    def waits_for(self, id: str) -> tuple[str, ...]:
        """Why it has not started: the actions that must be done first, in the plan's order."""
        return tuple(sorted(self._waits.get(id, ()), key=self._place.__getitem__))

    def rest(self) -> list[Action]:
        """Everything that is neither done nor failed nor skipped, in the plan's order; running ones included."""
        return sorted(self._actions.values(), key=lambda action: self._place[action.id])

    def _offer(self, id: str) -> None:
        if not self._waits[id]:
            heapq.heappush(self._ready, (-self._left[id], self._place[id], id))

    def _lengths(self) -> dict[str, int]:
        """Id → the number of actions on the longest way from it to an end."""
        open_followers = {id: len(followers) for id, followers in self._followers.items()}
        length = dict.fromkeys(self._actions, 1)
        due = [id for id, count in open_followers.items() if not count]
        seen = 0
        while due:
            id = due.pop()
            seen += 1
            for before in self._waits[id]:
                length[before] = max(length[before], length[id] + 1)
                open_followers[before] -= 1
                if not open_followers[before]:
                    due.append(before)
        if seen != len(self._actions):
            raise ValueError("the actions of a plan wait for each other in a circle")
        return length
