"""Line mode: the pair, and how it drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from macspec.errors import BadOptionError
from macspec.events import Notice
from macspec.models.progress import size
from macspec.worker import Failed, Loaded, LoadProgress, PairChoice

from .actions import METHODS, RULES
from .chat.picker import ModelPicker
from .linebase import LineBase

DEEPEST = 32

TENTHS = 10
"""Times that a download says how far it is."""


class LineModels(LineBase):
    """Loading and switching pairs, depth, method, rule and temperature."""

    fallback: PairChoice | None = None
    """The pair to load where the first one cannot be loaded; None: none."""
    _pairs: ModelPicker | None = None
    _loading: asyncio.Task[None] | None = None

    @property
    def pairs(self) -> ModelPicker:
        """What there is to choose from."""
        if self._pairs is None:
            used = [model for model in self.conversation.store.last_models().values() if model]
            self._pairs = ModelPicker(self.config, self.choice, used)
        self._pairs.current = self.choice
        return self._pairs

    def begin_loading(self) -> None:
        """Have the first pair loaded beside; needs a running loop."""
        self._loading = asyncio.ensure_future(self._load_first())

    async def _load_first(self) -> None:
        if not await self.load(self.choice) and self.fallback not in (None, self.choice):
            assert self.fallback is not None
            self.failures -= await self.load(self.fallback)

    async def loaded(self) -> None:
        if self._loading is not None:
            await self._loading

    async def load(self, choice: PairChoice) -> bool:
        """Load a pair, or switch to it; the one before stays if that fails, which is False."""
        told, there = -1, False
        async for event in self.conversation.load(choice):
            match event:
                case Notice(message):
                    self.say(message)
                case Failed():
                    self.failures += event.kind != "stopped"
                    self.say(event.message)
                case Loaded():
                    self.choice, there = choice, True
                case LoadProgress("downloading", done, total, model) if total:
                    if told != (tenth := done * TENTHS // total):
                        told = tenth
                        self.say(f"downloading {model}: {size(done)} of {size(total)}")
        return there

    async def do_models(self, argument: str) -> None:
        await self.loaded()
        if argument:
            if await self.load(self.pairs.asked(argument)):
                self.say(f"{self.conversation.panel().target} answers from now on")
            return
        self.say("looking at what is on this machine")
        async for _ in self.pairs.survey.run(self.pairs.folders):
            pass
        for offer in self.pairs.targets():
            named = offer.pairs[0].name if offer.absent and offer.pairs else offer.model
            self.print(f"{named or offer.name}: {offer.facts}")
        self.say("/models PAIR, or /models TARGET DRAFT, switches; a missing one is downloaded")

    def models(self) -> Sequence[tuple[str, str]]:
        """Models to name in a command."""
        return self.pairs.names()

    async def do_depth(self, argument: str) -> None:
        if not argument:
            self.print(f"depth {self.conversation.tuning.depth}")
            return
        depth: int | str = argument.lower()
        if depth != "auto":
            if not argument.isdecimal() or int(argument) > DEEPEST:
                raise BadOptionError(
                    f"{argument} is neither auto nor a whole number from 0 to {DEEPEST}"
                )
            depth = int(argument)
        await self._set(depth=depth)

    async def do_deeper(self, argument: str) -> None:
        await self._deepen(1)

    async def do_shallower(self, argument: str) -> None:
        await self._deepen(-1)

    async def _deepen(self, by: int) -> None:
        """One step from the depth that is set, or from the one that auto has used last."""
        state = self.conversation.panel()
        now = state.depth if isinstance(state.depth, int) else state.round_depth or 0
        await self._set(depth=min(max(now + by, 0), DEEPEST))

    async def do_method(self, argument: str) -> None:
        await self._choose("method", argument, tuple(METHODS), self.conversation.tuning.method)

    async def do_rule(self, argument: str) -> None:
        await self._choose("rule", argument, tuple(RULES), self.conversation.tuning.rule)

    async def do_temperature(self, argument: str) -> None:
        if not argument:
            self.print(f"temperature {self.conversation.tuning.sampling['temperature']:g}")
            return
        try:
            temperature = float(argument)
        except ValueError:
            raise BadOptionError(f"{argument} is no number") from None
        await self.conversation.tune(sampling={"temperature": temperature})
        self.say(f"temperature {temperature:g} from the next round on")

    async def _choose(self, what: str, wanted: str, choices: tuple[str, ...], now: str) -> None:
        """Set one of some words; none is wanted: the next one."""
        value = wanted.lower() or choices[(choices.index(now) + 1) % len(choices)]
        if value not in choices:
            raise BadOptionError(f"{wanted} is no {what}: choose from {', '.join(choices)}")
        await self._set(**{what: value})

    async def _set(self, **change: Any) -> None:
        await self.conversation.tune(**change)
        ((what, value),) = change.items()
        self.say(f"{what} {value} from the next round on")
