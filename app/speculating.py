"""What changes how the engine works, in mid-reply too."""

from __future__ import annotations

from typing import Any

from textual import on

from macspec.errors import BadOptionError, MacspecError

from .actions import METHODS, RULES
from .base import Base
from .messages import Tune

DEEPEST = 32


class Speculating(Base):
    """Depth, method, rule and temperature."""

    @on(Tune)
    def _turned(self, event: Tune) -> None:
        event.stop()
        self.begin(self.tune(**event.changes), "tune")

    async def tune(self, **changes: Any) -> None:
        """Set something from the next round on; the dials show how that went."""
        try:
            await self.conversation.tune(**changes)
        except MacspecError as error:
            self.main.tuning.refused(changes, str(error))
            raise
        self.main.tuning.done(changes)
        self.show_state()

    async def do_tuning(self, argument: str) -> None:
        self.main.add_class("-tuning")
        self.call_after_refresh(self.main.tuning.focus)

    async def do_depth(self, argument: str) -> None:
        if not argument:
            return await self._go_to("depth")
        depth: int | str = argument.lower()
        if depth != "auto":
            if not argument.isdecimal() or int(argument) > DEEPEST:
                raise BadOptionError(
                    f"{argument} is neither auto nor a whole number from 0 to {DEEPEST}"
                )
            depth = int(argument)
        await self._set("depth", depth)

    async def do_deeper(self, argument: str) -> None:
        await self._deepen(1)

    async def do_shallower(self, argument: str) -> None:
        await self._deepen(-1)

    async def _deepen(self, by: int) -> None:
        """One step from the depth that is set, or from the one that auto is using."""
        state = self.conversation.panel()
        now = state.depth if isinstance(state.depth, int) else state.round_depth or 0
        await self._set("depth", min(max(now + by, 0), DEEPEST))

    async def do_method(self, argument: str) -> None:
        await self._choose("method", argument, tuple(METHODS), self.conversation.panel().method)

    async def do_rule(self, argument: str) -> None:
        await self._choose("rule", argument, tuple(RULES), self.conversation.panel().rule)

    async def do_temperature(self, argument: str) -> None:
        if not argument:
            return await self._go_to("temperature")
        try:
            temperature = float(argument)
        except ValueError:
            raise BadOptionError(f"{argument} is no number") from None
        await self.tune(sampling={"temperature": temperature})
        self.say(f"temperature {temperature:g} from the next round on")

    async def _choose(self, what: str, wanted: str, choices: tuple[str, ...], current: str) -> None:
        """Set one of some words; none is wanted: the next one."""
        value = wanted.lower() or choices[(choices.index(current) + 1) % len(choices)]
        if value not in choices:
            raise BadOptionError(f"{wanted} is no {what}: choose from {', '.join(choices)}")
        await self._set(what, value)

    async def _set(self, what: str, value: int | str) -> None:
        await self.tune(**{what: value})
        self.say(f"{what} {value} from the next round on")

    async def _go_to(self, dial: str) -> None:
        await self.do_tuning("")
        self.main.tuning.select(dial)
