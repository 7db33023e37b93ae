"""The settings that can change while a reply streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from macspec.config import Config
from macspec.errors import BadOptionError, MacspecError
from macspec.worker import Call, EngineClient, Failed, PairInfo, Tuned, Tuning

from ..panel.state import PanelState


class Dials:
    """Method, depth and rule, which hold for all conversations, and the sampling of each.

    Args:
        config: what holds at the start.
    """

    def __init__(self, engine: EngineClient, config: Config) -> None:
        self._engine = engine
        self._sampling = asdict(config.sampling)
        speculation = config.speculation
        self._set = Tuning(speculation.method, speculation.depth, speculation.rule)
        self._there: Tuning | None = None
        """What the engine has, as far as is known."""
        self._asked: Call | None = None
        self._lent = False
        self.told = 0
        """How often the engine was asked to set something."""

    def wanted(self, sampling: Mapping[str, Any]) -> Tuning:
        """All of it, for a conversation that sets so much of the sampling itself."""
        own = {name: value for name, value in sampling.items() if name in self._sampling}
        return replace(self._set, sampling={**self._sampling, **own})

    async def tune(self, changes: Mapping[str, Any], sampling: Mapping[str, Any]) -> Tuning:
        """Change something from the next round on.

        Args:
            sampling: what the conversation has set so far.

        Raises:
            MacspecError: the engine refuses, and nothing is changed.
        """
        unknown = set(changes.get("sampling", ())) - set(self._sampling)
        if unknown:
            raise BadOptionError(f"there is no sampling setting {sorted(unknown)[0]}")
        new = {name: value for name, value in changes.items() if name != "sampling"}
        both = {**sampling, **changes.get("sampling", {})}
        wanted = replace(self.wanted(both), **new)
        await self._tell(wanted)
        self._set = replace(wanted, sampling={})
        return wanted

    async def set_sampling(self, sampling: Mapping[str, Any]) -> Tuning:
        """What the conversation sets from now on.

        Raises:
            MacspecError: the engine refuses, and nothing is changed.
        """
        wanted = self.wanted(sampling)
        await self._tell(wanted)
        return wanted

    async def lend(self, tuning: Tuning) -> None:
        """Let the engine work with another tuning, until ``settle``.

        Raises:
            MacspecError: the engine refuses.
        """
        self._lent = True
        await self._tell(tuning)

    def settle(self, sampling: Mapping[str, Any]) -> None:
        """Have the engine take what is set, before whatever it is asked next."""
        self._lent = False
        wanted = self.wanted(sampling)
        if wanted != self._there:
            self.told += 1
            self._asked, self._there = self._engine.tune(**asdict(wanted)), wanted

    def refusal(self) -> str | None:
        """Why the engine did not take what it was last asked to, once; None: it did."""
        asked = self._asked
        if asked is None or not asked.done:
            return None
        self._asked = None
        answer = asked.result()
        if isinstance(answer, Failed) and answer.kind == "refused":
            return answer.message
        return None

    def reported(self, tuning: Tuning, told: int) -> None:
        """What the engine says that it has; without a draft model it may be another method.

        Args:
            told: as it was when the engine was asked.
        """
        if told == self.told and not self._lent:
            self._there = tuning
            self._set = replace(self._set, method=tuning.method)

    def paired(self, pair: PairInfo) -> None:
        """A pair is there; one without a draft model has made the method auto again."""
        if pair.draft is None and self._set.method == "draft":
            self._set, self._there = replace(self._set, method="auto"), None

    def on(self, state: PanelState, sampling: Mapping[str, Any]) -> PanelState:
        """The same numbers, with what is set."""
        wanted = self.wanted(sampling)
        return replace(
            state,
            method=wanted.method,
            depth=wanted.depth,
            rule=wanted.rule,
            temperature=wanted.sampling["temperature"],
        )

    async def _tell(self, wanted: Tuning) -> None:
        self.told += 1
        call = self._engine.tune(**asdict(wanted))
        answer = [event async for event in call][-1]
        if isinstance(answer, Failed):
            kind = BadOptionError if answer.kind == "refused" else MacspecError
            raise kind(answer.message)
        assert isinstance(answer, Tuned)
        self._there = wanted


def described(changes: Mapping[str, Any]) -> list[str]:
    """What was changed, in a word or two each."""
    named = {"rule": "rule", "method": "method", "depth": "depth"}
    words = [f"{named[name]} {value}" for name, value in changes.items() if name in named]
    for name, value in changes.get("sampling", {}).items():
        words.append(f"{name.replace('_', ' ')} {value}")
    return words
