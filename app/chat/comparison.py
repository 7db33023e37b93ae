"""The last prompt again, plain and speculative in turns."""

from __future__ import annotations

import asyncio
import secrets
import statistics
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from macspec.errors import BadOptionError, MacspecError
from macspec.events import Finished, Round
from macspec.forks import first_difference
from macspec.power import ByMode, Saving
from macspec.power.meter import SETTLING
from macspec.store import ASSISTANT
from macspec.worker import Call, EngineClient, Failed, ReplyRequest, ScoreMargin, Tuning

from ..panel.live import LiveStats
from .energy import LOOK, Energies
from .settings import Dials


@dataclass(frozen=True, slots=True)
class ModeStats:
    """One of the two ways to decode, over its replies so far."""

    replies: int = 0
    """Those that are over."""
    tokens: int | None = None
    """Of each."""
    tokens_per_s: float | None = None
    """Median over the replies; of the one under way while there is no other."""
    ttft_s: float | None = None
    tokens_per_pass: float | None = None
    acceptance: float | None = None
    joules_per_token: float | None = None
    """Gross, of decode."""


@dataclass(frozen=True, slots=True)
class TextDivergence:
    """Where the two texts part. All text is untrusted."""

    token: int
    """How many tokens are equal before it."""
    before: str
    """The end of what both have."""
    plain: str
    """How the plain reply goes on; empty: it ends there."""
    speculative: str
    gap: float | None = None
    """Between the scores of the two tokens, where it was looked at."""
    near_tie: bool = False
    """Whether rounding explains it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A snapshot."""

    prompt: str = ""
    """The message that is answered again. Untrusted."""
    rule: str = "greedy"
    """greedy, keyed (both with one seed), block or match."""
    drafting: str = ""
    """How the speculative replies draft, in a word or two."""
    planned: int = 0
    """Replies in all, both ways together; they take turns."""
    doing: str = ""
    """plain or speculative: the reply under way; empty: none."""
    progress: float | None = None
    """Of that reply, 0 to 1, where its length is known."""
    plain: ModeStats = field(default_factory=ModeStats)
    speculative: ModeStats = field(default_factory=ModeStats)
    equal: bool | None = None
    """Whether both have the same text; None: not known yet, or nothing to expect of this rule."""
    fork: TextDivergence | None = None
    energy_reason: str = ""
    """Why there are no joules; empty where there are."""
    notes: Sequence[str] = ()
    """What else is worth knowing, each a line."""
    finished: bool = False


TURNS = ("plain", "speculative", "speculative", "plain")
"""In this order neither way gains by a machine that slowly warms or cools."""

LONGEST = 256
"""Tokens of a reply."""

BEFORE, AFTER = 60, 40
"""Characters that are shown on both sides of a fork."""

RULES = ("greedy", "keyed", "block", "match")


@dataclass(slots=True)
class _Replies:
    """The replies of one way, and the numbers of the one that is under way."""

    finished: list[Finished] = field(default_factory=list)
    tokens: int = 0
    first: int = 0
    seconds: float = 0.0

    def see(self, event: Round) -> None:
        """Count a pass of the reply under way."""
        if self.tokens == 0:
            self.first = len(event.tokens)
        else:
            self.seconds += event.seconds
        self.tokens += len(event.tokens)

    def end(self, event: Finished) -> None:
        """The reply under way is over; one that was stopped does not count."""
        if event.reason != "interrupted":
            self.finished.append(event)
        self.tokens, self.first, self.seconds = 0, 0, 0.0

    def way(self, joules: float | None) -> ModeStats:
        """The numbers so far."""
        stats = [each.stats for each in self.finished]
        if not stats:
            speed = (self.tokens - self.first) / self.seconds if self.seconds > 0 else None
            return ModeStats(tokens_per_s=speed)
        return ModeStats(
            replies=len(stats),
            tokens=stats[-1].tokens,
            tokens_per_s=_median([each.decode_tokens_per_s for each in stats]),
            ttft_s=_median([each.ttft_s for each in stats]),
            tokens_per_pass=_median([each.tokens_per_pass for each in stats]),
            acceptance=_median([each.acceptance for each in stats]),
            joules_per_token=joules,
        )


class Comparing:
    """A comparison while it runs.

    Args:
        prompt: the message that is answered again, to show it.
        request: the conversation up to it.
        tuning: what is set; the speculative replies draft so.
        rule: greedy, keyed, block or match; None: greedy where the temperature is 0, else keyed.
    """

    def __init__(
        self,
        engine: EngineClient,
        dials: Dials,
        live: LiveStats,
        energies: Energies,
        *,
        prompt: str,
        request: ReplyRequest,
        tuning: Tuning,
        rule: str | None = None,
    ) -> None:
        temperature = tuning.sampling["temperature"]
        rule = rule or ("greedy" if temperature == 0 else "keyed")
        if rule not in RULES:
            raise BadOptionError(f"{rule} is no rule: choose from {', '.join(RULES)}")
        if rule != "greedy" and temperature == 0:
            rule = "greedy"
        self._engine, self._dials, self._live, self._energies = engine, dials, live, energies
        length = min(request.max_tokens or LONGEST, LONGEST)
        # What was said to this prompt before must not be drafted from.
        self._request = replace(request, max_tokens=length, learn=False)
        self._ways = {"plain": _Replies(), "speculative": _Replies()}
        self._joules = ByMode()
        self._call: Call | None = None
        self._stopped = False
        self._tuning = _drafting(tuning, rule)
        depth = "" if self._tuning.depth == "auto" else f", depth {self._tuning.depth}"
        notes = [f"each reply ends after {length} tokens at the latest"]
        if rule == "keyed" and rule != tuning.rule:
            notes.append(f"your rule is {tuning.rule}; texts can be compared under {rule}")
        self.found = Comparison(
            prompt=prompt,
            rule=rule,
            drafting=f"{self._tuning.method}{depth}",
            planned=len(TURNS),
            notes=notes,
        )

    def stop(self) -> None:
        """End the reply that is under way, and the comparison with it."""
        if self._call is not None:
            self._call.stop()

    async def run(self) -> AsyncIterator[Comparison]:
        """Snapshots, each in the place of the one before.

        Raises:
            MacspecError: a reply failed.
        """
        try:
            for doing in TURNS:
                self.found = replace(self.found, doing=doing, progress=None)
                async for found in self._reply(doing):
                    yield found
                if self._stopped:
                    break
                await self._look_at_texts()
                yield self._shown()
            self.found = replace(self.found, doing="", progress=None, finished=True)
            yield self._shown()
        finally:
            self.stop()

    async def _reply(self, doing: str) -> AsyncIterator[Comparison]:
        """One reply, with its numbers."""
        replies, tuning = self._ways[doing], self._tuning
        await self._dials.lend(replace(tuning, method="off") if doing == "plain" else tuning)
        self._live.asked()
        watch = self._energies.watch()
        length = self._length()
        self._call = self._engine.reply(self._request)
        async for event in self._call:
            self._live.see(event)
            if watch is not None:
                watch.see(event)  # type: ignore[arg-type]
            match event:
                case Round():
                    replies.see(event)
                    share = None if length is None else min(replies.tokens / length, 1.0)
                    self.found = replace(self.found, progress=share)
                    yield self._shown()
                case Finished():
                    replies.end(event)
                    self._stopped = event.reason == "interrupted"
                case Failed("stopped"):
                    self._stopped = True
                case Failed(_, message):
                    raise MacspecError(message)
        self._call = None
        if watch is not None:
            for _ in range(int(SETTLING / LOOK)):
                if watch.settled:
                    break
                await asyncio.sleep(LOOK)
            energy = watch.result().decode
            self._joules.add(energy, speculative=doing == "speculative")
            self._energies.add(energy, speculative=watch.result().speculative)
            self.found = replace(self.found, energy_reason=energy.reason or "")
        else:
            self.found = replace(self.found, energy_reason=self._energies.reason)

    async def _look_at_texts(self) -> None:
        """Compare what both ways have written, where the rule promises the same."""
        plain, mine = (self._ways[way].finished for way in ("plain", "speculative"))
        if self.found.rule not in ("greedy", "keyed") or not plain or not mine:
            return
        first = plain[0]
        for other in (*mine, *plain[1:]):
            at = first_difference(first.token_ids, other.token_ids)
            if at is not None:
                fork = self.found.fork or await self._fork(first, other, at)
                self.found = replace(self.found, equal=False, fork=fork)
                return
        self.found = replace(self.found, equal=True)

    async def _fork(self, plain: Finished, other: Finished, at: int) -> TextDivergence:
        """Where two texts part, and how close the choice was."""
        one, two = plain.text, other.text
        same = first_difference([ord(c) for c in one], [ord(c) for c in two])
        same = len(one) if same is None else same
        fork = TextDivergence(
            token=at,
            before=one[max(same - BEFORE, 0) : same],
            plain=one[same : same + AFTER],
            speculative=two[same : same + AFTER],
        )
        ids = [each.token_ids[at] for each in (plain, other) if at < len(each.token_ids)]
        if len(ids) == 2:
            call = self._engine.score_margin(self._request, plain.token_ids[:at], tuple(ids))
            async for answer in call:
                if isinstance(answer, ScoreMargin):
                    near = answer.margin <= answer.tolerance
                    fork = replace(fork, gap=answer.margin, near_tie=near)
        return fork

    def _length(self) -> int | None:
        """How long the next reply will be, as far as that is known."""
        finished = self._ways["plain"].finished
        if finished and self.found.rule in ("greedy", "keyed"):
            return finished[0].stats.tokens
        return None

    def _shown(self) -> Comparison:
        saving = self._joules.saving()
        joules: list[float | None]
        if isinstance(saving, Saving):
            joules = [saving.plain, saving.speculative]
        else:
            joules = [self._joules.joules_per_token(speculative=mode) for mode in (False, True)]
        plain, mine = (
            self._ways[way].way(each)
            for way, each in zip(("plain", "speculative"), joules, strict=True)
        )
        self.found = replace(self.found, plain=plain, speculative=mine)
        return self.found


def last_prompt(roles: list[str]) -> int:
    """Where the last message stands that was answered, or waits for it.

    Raises:
        BadOptionError: there is none.
    """
    for place in range(len(roles) - 1, -1, -1):
        if roles[place] != ASSISTANT:
            return place
    raise BadOptionError("there is nothing to answer yet: say something first")


def _drafting(tuning: Tuning, rule: str) -> Tuning:
    """How the speculative replies are made: as it is set, or by itself where it is off."""
    method = "auto" if tuning.method == "off" else tuning.method
    depth = "auto" if tuning.depth == 0 else tuning.depth
    sampling = dict(tuning.sampling)
    if rule == "greedy":
        return Tuning(method, depth, "keyed", {**sampling, "temperature": 0})
    if rule == "keyed" and sampling.get("seed") is None:
        sampling["seed"] = secrets.randbits(32)
    return Tuning(method, depth, rule, sampling)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
