"""Which pair answers, and how a conversation asks it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from macspec.config.schema import SETTINGS
from macspec.errors import BadOptionError
from macspec.events import Notice
from macspec.worker import Failed, Loaded, LoadProgress, PairChoice

from .actions import SAMPLING, THINK, Choice
from .replying import Replying

if TYPE_CHECKING:
    from .chat.background import Download
    from .chat.picker import ModelPicker

BUILT_IN_NOTICE = "using the small pair that is built in"
"""Begins what the engine says of that pair; here the first card says it."""


class Modelling(Replying):
    """Loading and switching pairs, the system prompt, sampling, and A/B."""

    _pairs: ModelPicker | None = None

    async def load_first(self) -> None:
        """Load the pair to begin with, or what the settings say where that is gone."""
        if not await self.load(self.choice) and self.fallback not in (None, self.choice):
            assert self.fallback is not None
            await self.load(self.fallback)

    async def load(self, choice: PairChoice) -> bool:
        """Load a pair, or switch to it; the one before stays if that fails.

        Returns:
            Whether it is there now.
        """
        before, there = self.conversation.choice, False
        async for event in self.conversation.load(choice):
            match event:
                case Notice(message):
                    if not message.startswith(BUILT_IN_NOTICE):
                        self.say(message, "warning", also=True)
                case Failed("stopped"):
                    stays = "" if before is None else ", and the pair before answers"
                    self.told(f"loading was stopped{stays}")
                case Failed():
                    self.told(event.message, "error")
                case Loaded():
                    there = True
                    self.choice = choice
                    if self._pairs is not None:
                        self._pairs.current = choice
                    if before is not None:
                        self.told(_switched(event))
                case LoadProgress():
                    pass
            self.show_state()
        return there

    async def do_models(self, argument: str) -> None:
        if argument:
            await self.load(self.pairs().asked(argument))
            return
        from .screens.switcher import Switcher

        choice = await self.push_screen_wait(Switcher(self.pairs()))
        if choice is not None:
            await self.load(choice)

    def pairs(self) -> ModelPicker:
        """What there is to choose from; made when it is first asked for."""
        if self._pairs is None:
            from .chat.picker import ModelPicker

            used = self.conversation.store.last_models().values()
            folders = {name for name in used if name is not None and os.path.isabs(name)}
            self._pairs = ModelPicker(self.settings.config, self.choice, sorted(folders))
            self._pairs.ended = self._downloaded
        return self._pairs

    def _downloaded(self, download: Download) -> None:
        """A download that nobody waited for any more."""
        self.told(download.line())

    def models(self) -> Sequence[Choice]:
        """Models to choose from."""
        return self.pairs().names()

    async def do_system(self, argument: str) -> None:
        if argument:
            self.conversation.set_system(argument)
            self.say("the system prompt of this conversation is changed")
        else:
            await self._ask_settings("system")

    async def do_sampling(self, argument: str) -> None:
        if not argument:
            await self._ask_settings("temperature")
            return
        name, _, text = argument.partition(" ")
        if name not in SAMPLING:
            raise BadOptionError(f"there is no {name}: choose from {', '.join(SAMPLING)}")
        kind = SETTINGS[f"sampling.{name}"].kind
        try:
            value = kind.from_text(text.strip())
        except ValueError:
            raise BadOptionError(f"{name} must be {kind.says}") from None
        await self.conversation.set_sampling({**self.conversation.sampling, name: value})
        self.say(f"{name} {text.strip()} in this conversation")

    async def _ask_settings(self, field: str) -> None:
        from .screens.chatsettings import ChatSettings, ChatSettingsForm

        now = ChatSettings(self.conversation.system, self.conversation.sampling)
        form = ChatSettingsForm(now, self.settings.config, focus=field)
        wanted = await self.push_screen_wait(form)
        if wanted is not None:
            self.conversation.set_system(wanted.system)
            await self.conversation.set_sampling(wanted.sampling)

    async def do_think(self, argument: str) -> None:
        words = tuple(THINK)
        value = argument.lower() or words[(words.index(self.conversation.think or "auto") + 1) % 3]
        if value not in words:
            raise BadOptionError(f"{argument} is none of {', '.join(words)}")
        fixed = self.conversation.set_think(None if value == "auto" else value)
        self.say(fixed or f"reasoning {value}: {THINK[value]}, from the next reply on")

    async def do_compare(self, argument: str) -> None:
        from .screens.compare import CompareScreen

        self.push_screen(CompareScreen(self.conversation.compare(argument.lower() or None)))

    async def do_stats(self, argument: str) -> None:
        from .screens.help import Numbers

        self.push_screen(Numbers(self.conversation.panel))


def _switched(loaded: Loaded) -> str:
    pair = loaded.pair
    draft = "" if pair.draft is None else f" with {pair.draft}"
    return f"{pair.target}{draft} answers from here on"
