"""Every action in a list to search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from .actions import ACTIONS, Action

if TYPE_CHECKING:
    from .app import MacspecApp

LISTED = ("method", "rule", "depth", "theme", "think")
"""Actions whose choices are entries of their own."""


class Actions(Provider):
    """Actions, and what some of them can be set to."""

    @property
    def macspec(self) -> MacspecApp:
        """The app."""
        return cast("MacspecApp", self.app)

    async def discover(self) -> Hits:
        situation = self.macspec.situation()
        every = [action for action in ACTIONS if action.id != "palette"]
        for action in sorted(every, key=lambda action: action.refusal(situation) is not None):
            yield DiscoveryHit(
                self._entry(action), self._command(action), action.title, self._about(action)
            )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in ACTIONS:
            if action.id == "palette":
                continue
            names = (action.title, action.slash, action.id.replace("_", " "))
            score = max(map(matcher.match, names))
            if score > 0:
                title = matcher.highlight(action.title)
                yield Hit(
                    score,
                    self._entry(action, title),
                    self._command(action),
                    action.title,
                    self._about(action),
                )
            for text, value, about in self._choices(action):
                if (score := matcher.match(text)) > 0:
                    command = self._command(action, value)
                    yield Hit(score, matcher.highlight(text), command, text, about or None)

    def _choices(self, action: Action) -> Iterator[tuple[str, str, str]]:
        if action.id in LISTED and action.choices is not None:
            for value, about in action.choices(self.macspec):
                yield f"{action.title}: {value}", value, about

    def _entry(self, action: Action, title: Content | None = None) -> Content:
        key = self.macspec.keys.shown(action.id)
        return Content.assemble(title or Content(action.title), "  ", (key, "$text-muted"))

    def _about(self, action: Action) -> str:
        refusal = action.refusal(self.macspec.situation())
        return action.about if refusal is None else f"Not now: {refusal}."

    def _command(self, action: Action, argument: str = "") -> partial[None]:
        return partial(self.macspec.do, action.id, argument)


def palette() -> CommandPalette:
    """The list, as a screen."""
    return CommandPalette([Actions], placeholder="What shall be done?", id="--command-palette")
