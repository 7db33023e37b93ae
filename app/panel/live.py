"""What the engine reports while it works, as the numbers of the panel.

Every event takes the same time however long the reply is, and so does a snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from macspec.checked import last_check
from macspec.events import Finished, Prefilled, Prefilling, ReplyStats, Round
from macspec.power import ClockWatch
from macspec.stats import ReplyCounter
from macspec.worker import Failed, Loaded, LoadProgress, PairInfo, Status
from macspec.worker.messages import Answer

from .panelstate import Mark, PanelState

STEP = 0.5
"""Seconds of decode that one value of the history stands for."""

NOW = 1.0
"""Seconds over which the current speed is taken, at least."""

LONGEST = 240
"""Most values in the history; older ones are dropped."""


class LiveStats:
    """Turns the events of one engine into panel states; ``clocks`` notice when it slept."""

    def __init__(self, clocks: ClockWatch | None = None) -> None:
        self._clocks = clocks or ClockWatch()
        self._speeds = Speeds()
        self.shown = ReplyCounter()
        """The reply whose numbers are shown."""
        self._activity = "no model"
        self._progress: float | None = None
        self.pair: PairInfo | None = None
        self._status: Status | None = None
        self._plain: float | None = None
        self._session = SessionSpeed()
        self._self_check = ""
        self._pending = False
        """Whether a reply was requested and is not over."""
        self._elsewhere: int | None = None
        """Tokens of the conversation on screen, if the last reply belongs to another one."""

    def loading(self) -> None:
        self._activity, self._progress = "loading", None

    def asked(self) -> None:
        self._clocks.jumped()
        self.show(ReplyCounter())
        self._pending = True
        self._activity, self._progress = "waiting", None

    def resting(self) -> None:
        self._pending = False
        self._rest()

    def show(self, reply: ReplyCounter) -> None:
        """Show the numbers of this reply."""
        self.shown, self._elsewhere = reply, None
        self._speeds.begin()

    def elsewhere(self, tokens: int) -> None:
        """Another conversation is on screen, of so many tokens; the engine does not hold it."""
        self.show(ReplyCounter())
        self._elsewhere = tokens

    def mark(self, what: str) -> None:
        if self._activity == "writing":
            self._speeds.mark(what)

    def see(self, event: Answer) -> None:
        reply = self.shown
        if isinstance(event, Round) and self._clocks.jumped():
            reply.slept = True
        reply.see(event)
        match event:
            case Round():
                self._activity = "writing"
                if reply.passes > 1 and not reply.slept:
                    self._speeds.add(len(event.tokens), event.seconds)
            case Prefilling(done, total):
                self._activity = "reading"
                self._progress = done / total if total else None
            case Prefilled():
                self._activity, self._progress = "writing", None
            case LoadProgress():
                self._activity = "loading"
                self._progress = event.done / event.total if event.total else None
            case Loaded():
                if event.pair != self.pair:
                    self._another_pair()
                self.pair, pair = event.pair, event.pair
                check = last_check(pair.target, pair.draft, pair.weights)
                self._self_check = "" if check is None else str(check)
                self._status = None
                if self._activity == "loading":
                    self._rest()
            case Finished():
                speed, over = event.stats.decode_tokens_per_s, event.stats.measured_speedup
                self._plain = over / speed if speed and over else None
                self._session.add(event.stats, self._plain)
                self.resting()
            case Failed():
                if event.kind == "crashed":
                    self._status = None
                self._rest()
            case Status():
                self._status = event
                if event.pair == self.pair:
                    self._plain = event.plain_seconds
                if event.pair is not None:
                    self.pair = event.pair

    def _another_pair(self) -> None:
        """Nothing that was measured with one pair is shown beside the name of another."""
        self._plain, self._session = None, SessionSpeed()
        if self.shown.passes:
            self.elsewhere(self._context())

    def _rest(self) -> None:
        ready = "no model" if self.pair is None else "ready"
        self._activity, self._progress = "waiting" if self._pending else ready, None

    def state(self) -> PanelState:
        """The current numbers, without those that the engine does not know."""
        pair, status, reply = self.pair, self._status, self.shown
        stats, newest = reply.stats(live=True), reply.newest
        session = (
            self._session if reply.final is not None else self._session.plus(stats, self._plain)
        )
        known = PanelState(
            activity=self._activity,
            progress=self._progress,
            plain_tokens_per_s=1 / self._plain if self._plain else None,
            tokens_per_s=self._speeds.now if self._activity == "writing" else None,
            session_tokens=session.tokens,
            session_tokens_per_s=session.tokens_per_s,
            session_speedup=session.speedup,
            speeds=self._speeds.values,
            marks=self._speeds.marks,
            why=self._why(),
            self_check=self._self_check,
            acceptance_now=reply.recent_acceptance,
            acceptance=stats.acceptance,
            acceptance_by_position=stats.acceptance_by_position,
            tokens_per_pass=stats.tokens_per_pass,
            tokens=stats.tokens,
            passes=stats.passes,
            drafter=newest.drafter if newest is not None and newest.drafted else None,
            round_depth=None if newest is None else newest.depth,
            round_drafted=0 if newest is None else newest.drafted,
            round_accepted=0 if newest is None else newest.accepted,
            tokens_per_s_reply=stats.decode_tokens_per_s,
            ttft_s=stats.ttft_s,
            itl_ms_median=stats.itl_ms_median,
            itl_ms_p95=stats.itl_ms_p95,
        )
        if pair is not None:
            known = replace(
                known,
                target=pair.target,
                draft=pair.draft,
                draft_off=pair.draft_off,
                rollback=pair.rollback,
                head=pair.head,
                context_limit=pair.context,
                context_used=self._context(),
                memory_plan=pair.planned,
            )
        if status is not None:
            memory, limit = status.memory, status.memory_limit
            known = replace(known, memory_used=memory, memory_limit=limit, kernels=status.kernels)
        return known

    def _context(self) -> int:
        if self._elsewhere is not None:
            return self._elsewhere
        used = self.shown.prompt_tokens + self.shown.tokens
        return used if used or self._status is None else self._status.cached_tokens

    def _why(self) -> str:
        """The newest round's; empty until a new reply has had one."""
        if self.shown.newest is not None:
            return self.shown.newest.why
        return "" if self._status is None or self._pending else self._status.why


@dataclass(slots=True)
class SessionSpeed:
    """The decode of all replies since a pair was loaded."""

    tokens: int = 0
    _seconds: float = 0.0
    _compared: float = 0.0
    """Seconds of the replies that drafted and whose plain speed is known, and what they would have
    taken without."""
    _plain: float = 0.0

    def add(self, reply: ReplyStats, plain: float | None) -> None:
        """Add a reply; ``plain``: seconds of a plain round in it, if that was measured."""
        seconds = reply.seconds.decode
        if reply.decode_tokens_per_s is None or seconds <= 0:
            return
        tokens = round(reply.decode_tokens_per_s * seconds)
        self.tokens += tokens
        self._seconds += seconds
        if reply.drafted and plain is not None:
            self._compared += seconds
            self._plain += tokens * plain

    def plus(self, reply: ReplyStats, plain: float | None) -> SessionSpeed:
        """The same with the reply that streams."""
        both = replace(self)
        both.add(reply, plain)
        return both

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self._seconds if self._seconds else None

    @property
    def speedup(self) -> float | None:
        return self._plain / self._compared if self._compared else None


class Speeds:
    """Decoding speed now and over time, by the engine's own clock."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=LONGEST)
        self._count = 0
        """Values so far, those that were dropped too."""
        self._marks: deque[Mark] = deque()
        self._tokens, self._seconds = 0.0, 0.0
        """Of the step that has begun."""
        self.begin()

    def begin(self) -> None:
        """Another reply begins: the history goes on, the last second starts anew."""
        self._recent = deque([(0, 0.0)])
        """Tokens and seconds of the reply, before and after each pass of the last second."""

    def add(self, tokens: int, seconds: float) -> None:
        before, lasted = self._recent[-1]
        self._recent.append((before + tokens, lasted + seconds))
        while lasted + seconds - self._recent[1][1] >= NOW:
            self._recent.popleft()
        self._spread(tokens, seconds)

    def mark(self, what: str) -> None:
        self._marks.append(Mark(self._count, what))

    @property
    def now(self) -> float | None:
        """Tokens per second over the last second or so; None before there are any."""
        (before, began), (tokens, ended) = self._recent[0], self._recent[-1]
        return (tokens - before) / (ended - began) if ended > began else None

    @property
    def values(self) -> Sequence[float]:
        return tuple(self._values)

    @property
    def marks(self) -> Sequence[Mark]:
        """What was changed, and at which of the values: the last one until there is a next."""
        last = len(self._values) - 1
        gone = self._count - len(self._values)
        while self._marks and self._marks[0].at < gone:
            self._marks.popleft()
        found = self._marks if self._values else ()
        return tuple(Mark(min(mark.at - gone, last), mark.what) for mark in found)

    def _spread(self, tokens: float, seconds: float) -> None:
        """Spread a pass over the steps that it spans."""
        rate = tokens / seconds if seconds > 0 else 0.0
        while self._seconds + seconds >= STEP - 1e-9:
            part = STEP - self._seconds
            self._values.append((self._tokens + rate * part) / STEP)
            self._count += 1
            seconds -= part
            self._tokens, self._seconds = 0.0, 0.0
        self._tokens += rate * seconds
        self._seconds += seconds
