"""The last prompt again, plain and speculative in turns."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace

from macspec.choices import RULES
from macspec.divergence import first_difference
from macspec.errors import BadOptionError, MacspecError
from macspec.events import Finished, Round
from macspec.power import ByMode
from macspec.stats import ReplyCounter
from macspec.worker import Call, EngineClient, Failed, ReplyRequest, ScoreMargin, Tuning

from ..panel.live import LiveStats
from .energy import EnergyMeter, final
from .enginesetup import EngineSetup

MODES = ("plain", "speculative")

TEXT_RULES = ("greedy", "keyed")
"""Rules that guarantee exactly the text of plain decoding."""

TURNS = ("plain", "speculative", "speculative", "plain")
"""In this order a machine that slowly warms up or cools down favours neither mode."""

LONGEST = 256
"""Tokens of a reply."""

BEFORE, AFTER = 60, 40
"""Characters that are shown before and after the texts diverge."""


@dataclass(frozen=True, slots=True)
class ModeStats:
    """The numbers of one mode, plain or speculative, over its replies so far."""

    replies: int = 0
    """Those that have ended."""
    tokens: int | None = None
    """Of each."""
    tokens_per_s: float | None = None
    """Median over the replies; of the first one while it streams."""
    ttft_s: float | None = None
    tokens_per_pass: float | None = None
    acceptance: float | None = None
    joules_per_token: float | None = None
    """Gross, of decode."""


@dataclass(frozen=True, slots=True)
class TextDivergence:
    """Where the two texts diverge. All text is untrusted."""

    token: int
    """How many tokens are equal before it."""
    before: str
    """The end of the text that both share."""
    plain: str
    """How the plain reply continues; empty: it ends there."""
    speculative: str
    gap: float | None = None
    """Between the scores of the two tokens, if it was measured."""
    near_tie: bool = False
    """Whether rounding explains it."""


@dataclass(slots=True)
class Comparison:
    """What is known so far."""

    prompt: str = ""
    """The message that is answered again. Untrusted."""
    rule: str = "greedy"
    """greedy, keyed (both with one seed), block or match."""
    drafting: str = ""
    """How the speculative replies draft, in a word or two."""
    planned: int = 0
    """Replies in all, of both modes, in turns."""
    doing: str = ""
    """plain or speculative: the reply that streams; empty: none."""
    progress: float | None = None
    """Of that reply, 0 to 1, where its length is known."""
    plain: ModeStats = field(default_factory=ModeStats)
    speculative: ModeStats = field(default_factory=ModeStats)
    equal: bool | None = None
    """Whether both texts are the same; None: not known yet, or not promised by this rule."""
    fork: TextDivergence | None = None
    energy_reason: str = ""
    """Why there are no joules; empty where there are."""
    notes: Sequence[str] = ()
    """Further remarks, one line each."""
    finished: bool = False


class Comparing:
    """A comparison while it runs.

    Args:
        prompt: the message that is answered again, as it is shown.
        request: the conversation up to it.
        rule: greedy, keyed, block or match; None: greedy where the temperature is 0, else keyed.
    """

    def __init__(
        self,
        engine: EngineClient,
        setup: EngineSetup,
        live: LiveStats,
        energy: EnergyMeter,
        *,
        prompt: str,
        request: ReplyRequest,
        rule: str | None = None,
    ) -> None:
        tuning = setup.desired
        choices = ("greedy", *RULES)
        if rule is not None and rule not in choices:
            raise BadOptionError(f"{rule} is not a rule: choose one of {', '.join(choices)}")
        greedy = tuning.sampling["temperature"] == 0
        rule = "greedy" if greedy else rule or "keyed"
        self._engine, self._setup, self._live, self._energy = engine, setup, live, energy
        length = min(request.max_tokens or LONGEST, LONGEST)
        # Earlier replies to this prompt must not be drafted from.
        self._request = replace(request, max_tokens=length, learn=False)
        self._finished: dict[str, list[Finished]] = {mode: [] for mode in MODES}
        self._counter = ReplyCounter()
        """Of the reply that streams."""
        self._joules = ByMode()
        self._call: Call | None = None
        self._stopped = False
        self._tuning = _speculative(tuning, rule)
        depth = "" if self._tuning.depth == "auto" else f", depth {self._tuning.depth}"
        notes = [f"each reply has at most {length} tokens"]
        if rule == "keyed" and rule != tuning.rule:
            notes.append(f"your rule is {tuning.rule}; texts can only be compared under {rule}")
        self.found = Comparison(
            prompt=prompt,
            rule=rule,
            drafting=f"{self._tuning.method}{depth}",
            planned=len(TURNS),
            notes=notes,
        )

    def stop(self) -> None:
        """Stop the reply that streams, and the comparison with it."""
        if self._call is not None:
            self._call.stop()

    async def run(self) -> AsyncIterator[Comparison]:
        """Snapshots, each of which replaces the one before; MacspecError: a reply failed."""
        for mode in TURNS:
            self.found.doing, self.found.progress = mode, None
            async for found in self._reply(mode):
                yield found
            if self._stopped:
                break
            await self._compare_texts()
            yield self._snapshot()
        self.found.doing, self.found.progress, self.found.finished = "", None, True
        yield self._snapshot()

    async def _reply(self, mode: str) -> AsyncIterator[Comparison]:
        tuning = replace(self._tuning, method="off") if mode == "plain" else self._tuning
        await self._setup.lend(tuning)
        self._live.asked()
        watch, before = self._energy.watch(), self._finished["plain"]
        counter = self._counter = ReplyCounter()
        self._call = self._engine.reply(self._request)
        async for event in self._call:
            self._live.see(event)
            counter.see(event)
            if watch is not None:
                watch.see(event)  # type: ignore[arg-type]
            match event:
                case Round():
                    if before and self.found.rule in TEXT_RULES:
                        self.found.progress = min(counter.tokens / before[0].stats.tokens, 1.0)
                    yield self._snapshot()
                case Finished():
                    self._stopped = event.reason == "interrupted"
                    if not self._stopped:
                        self._finished[mode].append(event)
                case Failed("stopped"):
                    self._stopped = True
                case Failed(_, message):
                    raise MacspecError(message)
        self._call = None
        self.found.energy_reason = self._energy.reason
        if watch is not None:
            await final(watch)
            energy = watch.result()
            self._joules.add(energy.decode, speculative=mode == "speculative")
            self._energy.by_mode.add(energy.decode, speculative=energy.speculative)
            self._energy.teach(watch, energy)
            self.found.energy_reason = energy.decode.reason or ""

    async def _compare_texts(self) -> None:
        """Compare the texts of both modes, where the rule promises the same."""
        plain, speculative = (self._finished[mode] for mode in MODES)
        if self.found.rule not in TEXT_RULES or not plain or not speculative:
            return
        first = plain[0]
        for other in (*speculative, *plain[1:]):
            at = first_difference(first.token_ids, other.token_ids)
            if at is not None:
                self.found.equal = False
                self.found.fork = self.found.fork or await self._divergence(first, other, at)
                return
        self.found.equal = True

    async def _divergence(self, plain: Finished, other: Finished, at: int) -> TextDivergence:
        one, two = plain.text, other.text
        same = first_difference([ord(c) for c in one], [ord(c) for c in two])
        same = len(one) if same is None else same
        found = TextDivergence(
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
                    found = replace(found, gap=answer.margin, near_tie=near)
        return found

    def _snapshot(self) -> Comparison:
        joules = self._joules.compared()
        self.found.plain = self._stats("plain", joules[0])
        self.found.speculative = self._stats("speculative", joules[1])
        return replace(self.found)

    def _stats(self, mode: str, joules: float | None) -> ModeStats:
        stats = [each.stats for each in self._finished[mode]]
        if not stats:
            live = self._counter if mode == self.found.doing else ReplyCounter()
            return ModeStats(tokens_per_s=live.stats(live=True).decode_tokens_per_s)
        return ModeStats(
            replies=len(stats),
            tokens=stats[-1].tokens,
            tokens_per_s=_median(each.decode_tokens_per_s for each in stats),
            ttft_s=_median(each.ttft_s for each in stats),
            tokens_per_pass=_median(each.tokens_per_pass for each in stats),
            acceptance=_median(each.acceptance for each in stats),
            joules_per_token=joules,
        )


def _speculative(tuning: Tuning, rule: str) -> Tuning:
    """How the speculative replies are generated: as it is set, or auto where it is off."""
    method = "auto" if tuning.method == "off" else tuning.method
    depth = "auto" if tuning.depth == 0 else tuning.depth
    sampling = dict(tuning.sampling)
    if rule == "greedy":
        return replace(
            tuning,
            method=method,
            depth=depth,
            rule="keyed",
            sampling={**sampling, "temperature": 0},
        )
    if rule == "keyed" and sampling.get("seed") is None:
        sampling["seed"] = secrets.randbits(32)
    return replace(tuning, method=method, depth=depth, rule=rule, sampling=sampling)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
