"""The controller against published cost curves and recorded traces, on a simulated clock.

The controller itself runs, with the same calls in the same order as in the decoding loop. Only the
models, which cost time, are simulated.
"""

from __future__ import annotations

import random
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..choices import MAX_DEPTH
from ..cli.table import Table
from ..control import (
    PLAIN,
    AcceptanceEstimate,
    Controller,
    CostCurve,
    Offer,
    Plan,
    RecentAcceptance,
    bucket_of,
)
from ..control.cost import READING, ROWS
from ..drafters.chain import DEEP
from ..drafters.portfolio import SHADOW
from ..learned import STUDIED
from .published import DRAFT_STEP, Factor, PublishedCurve
from .sample import named
from .traces import NOTHING, Recorded, Trace, accepting

GAP = 0.02
"""An assumption: the share of a plain step that the device waits for the host before a round that
is not launched ahead."""

SHAKE = 0.02
"""Standard deviation of the round times that the controller sees."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A drafter at a depth, for the whole of a text."""

    drafter: str | None
    depth: int

    def __str__(self) -> str:
        return f"{self.drafter} {self.depth}" if self.drafter else "plain"


@dataclass(frozen=True, slots=True)
class Played:
    """A decoded text."""

    tokens: int
    cost: float
    """Plain steps."""

    @property
    def speed(self) -> float:
        """Tokens a plain step; plain decoding is 1."""
        return self.tokens / self.cost


def total(played: Sequence[Played]) -> Played:
    return Played(sum(it.tokens for it in played), sum(it.cost for it in played))


@dataclass(frozen=True, slots=True)
class Result:
    """One trace on one curve."""

    curve: PublishedCurve
    trace: Trace
    cold: Played
    """With a controller that knows nothing but the costs that were measured after loading."""
    warm: Played
    """With the same one, once more."""
    fixed: dict[Setting, Played]
    """Each setting for the whole trace; plain is one."""

    @property
    def oracle(self) -> Setting:
        """The fastest fixed setting."""
        return max(self.fixed, key=lambda it: self.fixed[it].speed)

    @property
    def report(self) -> Factor | None:
        """Of the trace's drafter on this machine, where the trace follows such a report."""
        known = self.curve.drafters.get(self.trace.name)
        if known is None:
            return None
        return self.curve.factors.get(known.drafter, Factor(known.depth, None, known.where))

    @property
    def predicted(self) -> float | None:
        """Mean speed over the replies at the depth of that report, as reports give it."""
        if self.report is None:
            return None
        setting = Setting(self.trace.name, self.report.depth)
        alone = [replace(self.trace, replies=[reply]) for reply in self.trace.replies]
        return statistics.mean(fixed(it, self.curve, setting).speed for it in alone)

    def regret(self, played: Played) -> float:
        """Share of the oracle's speed that was missed; negative where it was beaten."""
        return 1 - played.speed / self.fixed[self.oracle].speed


class Player:
    """Plays replies back as the decoding loop would decode them; the clock shakes by ``seed``."""

    def __init__(self, curve: PublishedCurve, controller: Controller, seed: int = 0) -> None:
        self.curve, self.controller = curve, controller
        self._recent = RecentAcceptance()
        self._chance = random.Random(seed)
        self._models: Sequence[str] = ["draft"]
        """The trace's drafters that run a model."""
        self._text = _Text(Recorded(0, 0, {}, {}), curve)
        """The newest reply."""

    def play(self, trace: Trace) -> Played:
        """All its replies, with a moment's rest before each, in which costs are measured."""
        rounds: list[Played] = []
        self._models = trace.models
        self.measure(trace.replies[0].prompt)
        for reply in trace.replies:
            rounds += self.rounds(reply)
            self.study()
            self.measure(reply.prompt + reply.tokens)
        return total(rounds)

    def study(self) -> None:
        """What it learns from the end of a reply of which a drafter read nothing."""
        text = self._text
        for name in text.reply.models:
            at, learned = max(text.read.get(name, 0) - text.prompt, text.tokens - STUDIED, 0), []
            while at < text.tokens:
                depth = min(DEEP, text.tokens - at)
                accepted = min(text.reply.models[name][at], depth)
                learned.append((bucket_of(self._recent.share(text.prompt + at)), depth, accepted))
                self._recent.observe(text.prompt + at, depth, accepted)
                at += accepted + 1
            self.controller.study(name, learned, text.prompt + text.tokens)

    def measure(self, length: int) -> None:
        """What the idle machine does: measure the costs at this context length."""
        learned, most = self.controller.curve, self.curve.most
        for name in self._models:
            step = self.curve.step(name)
            learned.set_parts(name, self._shaken(step), self._shaken(step * READING))
        while missing := [it for it in learned.missing(length, self._models) if it[1] < most]:
            for name, depth in missing:
                cost = self._shaken(self.curve.round(name, depth))
                learned.learn(name, depth, length, cost)

    def rounds(self, reply: Recorded) -> Iterator[Played]:
        """The rounds of one reply, which is a conversation of its own."""
        text = self._text = _Text(reply, self.curve)
        self._recent = RecentAcceptance()
        controller, at = self.controller, 0
        models = [text.offer(name, at, bucket_of(self._recent.share(0))) for name in reply.models]
        if reader := controller.reader(models, text.prompt, MAX_DEPTH):
            text.read[reader] = text.prompt - 1
        plan = self._plan(text, at)
        flight, early = plan, False
        while True:
            more = text.tokens - at > 1
            ahead = more and not flight.depth and not plan.depth and controller.pipelines
            prefetched = plan if ahead else None
            drafted, accepted = text.decode(flight, at)
            idle = 0.0 if early else GAP
            cost = idle + self.curve.round(flight.drafter, drafted, flight.unread)
            overlaps = early + (prefetched is not None)
            # The first pass takes in the prompt's tail too.
            took = self._shaken(cost) if at > 0 else None
            waited = idle * took / cost if took else 0.0
            controller.observe_cost(flight, drafted, accepted + 1, took, overlaps, waited=waited)
            self._learn(text, flight, at, drafted, accepted)
            at += accepted + 1
            yield Played(accepted + 1, cost)
            if at >= text.tokens:
                return
            if not controller.resting:
                plan = self._plan(text, at)
            flight, early = prefetched or plan, prefetched is not None

    def _plan(self, text: _Text, at: int) -> Plan:
        # A trace holds no tokens: how drafts fare after each one is not simulated.
        bucket = bucket_of(self._recent.share(text.prompt + at))
        names = [*text.reply.lookups, *text.reply.models]
        offers = [text.offer(name, at, bucket) for name in names]
        return self.controller.choose(offers, text.prompt + at, MAX_DEPTH)

    def _learn(self, text: _Text, flight: Plan, at: int, drafted: int, accepted: int) -> None:
        if flight.drafter in text.reply.models:
            self._recent.observe(text.prompt + at, drafted, accepted)
        if flight.drafter is not None:
            self.controller.acceptance.observe(flight.drafter, flight.bucket, drafted, accepted)
        if self.controller.last.length != text.prompt + at:
            return  # no choice considered them
        for name, guesses in text.reply.lookups.items():
            guess = guesses[at]
            compared = min(SHADOW, guess.room, accepted + 1)
            if name != flight.drafter and compared:
                agreed = min(guess.run, compared)
                judged = min(agreed + 1, compared)
                self.controller.acceptance.observe(name, guess.bucket, judged, agreed)

    def _shaken(self, cost: float) -> float:
        return cost * max(self._chance.gauss(1, SHAKE), 0.5)


class _Text:
    """A reply while it is played."""

    def __init__(self, reply: Recorded, curve: PublishedCurve) -> None:
        self.reply = reply
        self.prompt, self.tokens = reply.prompt, reply.tokens
        self.read: dict[str, int] = {}
        """Tokens that each drafter's model has read, the prompt's included."""
        self._room = curve.room(MAX_DEPTH)

    def offer(self, name: str | None, at: int, bucket: int = 0) -> Offer:
        """What a drafter could do before token ``at``; ``bucket`` is that of models."""
        name = name or ""
        if name in self.reply.models:
            unread = self.prompt + at - self.read.get(name, 0)
            return Offer(name, self._room, bucket, unread)
        guesses = self.reply.lookups.get(name)
        guess = guesses[at] if guesses else NOTHING
        return Offer(name, min(guess.room, self._room), guess.bucket)

    def decode(self, plan: Plan, at: int) -> tuple[int, int]:
        """Drafted and accepted tokens of the round before token ``at``."""
        if plan.drafter is None:
            return 0, 0
        most = self.tokens - at - 1
        if plan.drafter not in self.reply.models:
            guess = self.reply.lookups[plan.drafter][at]
            drafted = min(plan.depth, guess.room)
            return drafted, min(guess.run, drafted, most)
        accepted = min(self.reply.models[plan.drafter][at], plan.depth, most)
        # A draft model has read its own tokens but the last, as far as they were accepted.
        self.read[plan.drafter] = self.prompt + at + min(plan.depth - 1, accepted)
        return plan.depth, accepted


def fixed(trace: Trace, curve: PublishedCurve, setting: Setting) -> Played:
    """The trace at one setting throughout.

    The host's moment is charged only where a round must wait for it: a plain round after a plain
    one is taken to be launched ahead whenever no match is lost by that.
    """
    rounds = []
    for reply in trace.replies:
        text = _Text(reply, curve)
        if setting.drafter is not None:
            text.read[setting.drafter] = text.prompt - 1
        at, plain = 0, setting.drafter is None
        while at < reply.tokens:
            offer = text.offer(setting.drafter, at)
            depth = min(setting.depth, offer.room)
            plan = Plan(setting.drafter, depth, unread=offer.unread) if depth > 0 else PLAIN
            drafted, accepted = text.decode(plan, at)
            gap = 0.0 if plain and not drafted else GAP
            cost = curve.round(plan.drafter, drafted, plan.unread) + gap
            rounds.append(Played(accepted + 1, cost))
            plain, at = not drafted, at + accepted + 1
    return total(rounds)


def sweep(trace: Trace, curve: PublishedCurve) -> dict[Setting, Played]:
    """Every setting that fills a measured pass, plain included."""
    depths = [rows - 1 for rows in ROWS if 1 < rows <= curve.most]
    settings = [Setting(name, depth) for name in trace.drafters for depth in depths]
    return {it: fixed(trace, curve, it) for it in [Setting(None, 0), *settings]}


def fresh(curve: PublishedCurve, models: Sequence[str]) -> Controller:
    """A controller as a first start has it; what a draft step costs is known only roughly."""
    return Controller(CostCurve({it: curve.step(it) / 2 for it in models}), AcceptanceEstimate())


def texts(curve: PublishedCurve, seed: int = 0) -> list[Trace]:
    """Of each drafter of the curve's model, texts that it guesses as well as was published."""
    known = [it for it in curve.drafters.values() if it.tokens]
    return [accepting(it.drafter, it.depth, it.tokens, seed) for it in known]


def simulate(curve: PublishedCurve, traces: Sequence[Trace], seed: int = 0) -> Iterator[Result]:
    """Every trace on a curve; the clock shakes by ``seed``."""
    for trace in traces:
        player = Player(curve, fresh(curve, trace.models), seed)
        cold = player.play(trace)
        yield Result(curve, trace, cold, player.play(trace), sweep(trace, curve))


def best_for_all(results: Sequence[Result]) -> Setting:
    """The one fixed setting that is fastest over all these traces together; each counts alike."""
    settings = {setting for result in results for setting in result.fixed}
    plain = Setting(None, 0)

    def time(setting: Setting) -> float:
        # A setting whose drafter a trace does not have is plain decoding there.
        return sum(1 / result.fixed.get(setting, result.fixed[plain]).speed for result in results)

    return min(sorted(settings, key=str), key=time)


def as_record(result: Result) -> dict[str, Any]:
    """Ready for JSON."""
    drafter = result.curve.drafters.get(result.trace.name)
    report, predicted = result.report, result.predicted
    return {
        "curve": result.curve.name,
        **named(result.curve, "machine", "whose", "where", "what", "derived"),
        "trace": result.trace.name,
        **named(result.trace, "kind", "about"),
        "drafter": None if drafter is None else asdict(drafter),
        "tokens": result.cold.tokens,
        "cold": round(result.cold.speed, 4),
        "warm": round(result.warm.speed, 4),
        "oracle": round(result.fixed[result.oracle].speed, 4),
        "setting": str(result.oracle),
        "regret_cold": round(result.regret(result.cold), 4),
        "regret_warm": round(result.regret(result.warm), 4),
        "predicted": None if predicted is None else round(predicted, 4),
        "published": None if report is None else asdict(report),
    }


def simulation(curve: PublishedCurve, results: Sequence[Result]) -> str:
    """The results on one curve for a terminal."""
    first = ("trace", "kind", "auto", "again", "oracle", "", "regret", "again")
    columns = (*first, "published", "predicted")
    rows = [
        (
            it["trace"],
            it["kind"],
            *(f"{it[name]:.2f}" for name in ("cold", "warm", "oracle")),
            it["setting"],
            *(f"{it[name]:.1%}" for name in ("regret_cold", "regret_warm")),
            *_reported(it),
        )
        for it in map(as_record, results)
    ]
    title = f"{curve.name}: {curve.machine}, as reported by {curve.whose}"
    derived = textwrap.wrap(f"derived: {curve.derived}", 96) if curve.derived else []
    lines = [*derived, f"best single setting for all traces: {best_for_all(results)}"]
    below = "".join(f"  {line}\n" for line in lines)
    return f"{Table(title, columns, rows, left=2).text()}{below}\n"


def _reported(record: Mapping[str, Any]) -> tuple[str, str]:
    """The published speed with its depth, and the predicted one."""
    report = record["published"]
    if report is None:
        return "", ""
    factor = "-" if report["factor"] is None else f"{report['factor']:.2f}"
    return f"{factor} @{report['depth']}", f"{record['predicted']:.2f}"


def simulation_notes(traces: Sequence[Trace], results: Sequence[Result]) -> str:
    """How to read the tables."""
    lines = [
        line
        for trace in traces
        for line in textwrap.wrap(
            f"{trace.name}: {trace.kind}; {trace.about}", 98, subsequent_indent="  "
        )
    ]
    lines += [
        "",
        "auto: a new controller, costs measured after loading; again: the same one, the text again",
        "oracle: the fastest single drafter and depth for that trace, found by a sweep",
        "regret: the share of the oracle's speed that auto missed; below 0 it was faster",
        "published: speed over plain at a depth, prompt included, on this machine; predicted: that",
        "of decoding at the same depth here. --json has the sources of what drafters cost and get",
        f"assumed: {DRAFT_STEP:g} plain steps per draft step where unknown, {GAP:g} for the host",
        "before a round that is not launched ahead, look-ups free; the tokens of a published text",
        f"are equally easy; the controller's clock jitters by {SHAKE:.0%}",
        "costs are interpolated between an author's points; no pass is wider than the last one",
    ]
    if results:
        first = max(results, key=lambda it: it.regret(it.cold))
        again = max(results, key=lambda it: it.regret(it.warm))
        lines.append(
            f"largest regret: {first.regret(first.cold):.1%} ({first.curve.name}, "
            f"{first.trace.name}), again {again.regret(again.warm):.1%} ({again.curve.name}, "
            f"{again.trace.name})"
        )
    return "".join(f"{line}\n" for line in lines)
