"""What the engine tells while it works, as the numbers of the panel.

Every event costs the same however long the reply is, and so does a look at the panel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from macspec.checked import last_check
from macspec.events import Finished, Notice, Prefilled, Prefilling, ReplyStats, Round, Text
from macspec.power.clocks import ClockWatch
from macspec.worker import Failed, Loaded, LoadProgress, PairInfo, Status
from macspec.worker.messages import Answer

from .latencies import Latencies
from .speeds import Speeds
from .state import Mark, PanelState

RECENT = 24
"""Rounds that acceptance now is taken over."""


@dataclass(slots=True)
class Reply:
    """The counters of one reply."""

    prompt: int = 0
    ttft: float | None = None
    tokens: int = 0
    passes: int = 0
    first: int = 0
    """Tokens of the first pass, which the prompt's last part is read with."""
    decode: float = 0.0
    """Seconds after the first pass."""
    drafted: int = 0
    accepted: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    latencies: Latencies = field(default_factory=Latencies)
    newest: Round | None = None
    slept: bool = False
    """The machine slept, or its clock was set, meanwhile: no time holds."""
    final: ReplyStats | None = None

    def count(self, event: Round) -> None:
        """Count a pass."""
        self.newest = event
        self.passes += 1
        self.tokens += len(event.tokens)
        if self.passes == 1:
            self.first = len(event.tokens)
        else:
            self.decode += event.seconds
            self.latencies.add(event.seconds, max(len(event.tokens), 1))
        self.drafted += event.drafted
        self.accepted += event.accepted
        self.recent.append((event.drafted, event.accepted))
        grow = event.drafted - len(self.drafted_at)
        self.drafted_at += [0] * grow
        self.accepted_at += [0] * grow
        for position in range(event.drafted):
            self.drafted_at[position] += 1
            self.accepted_at[position] += position < event.accepted


class LiveStats:
    """Listens to one engine.

    Args:
        clocks: notices when the machine slept.
    """

    def __init__(self, clocks: ClockWatch | None = None) -> None:
        self._clocks = clocks or ClockWatch()
        self._speeds = Speeds()
        self._reply = Reply()
        self._activity = "no model"
        self._progress: float | None = None
        self.pair: PairInfo | None = None
        self._status: Status | None = None
        self._plain: float | None = None
        self._self_test = ""
        self._pending = False
        """Whether a reply has been asked for and is not over."""
        self._elsewhere = False
        """Whether the last reply is not of the conversation that is shown."""

    def loading(self) -> None:
        """A pair is asked for."""
        self._activity, self._progress = "loading", None

    def asked(self) -> None:
        """A reply is asked for."""
        self._clocks.jumped()
        self._reply, self._elsewhere = Reply(), False
        self._speeds.begin()
        self._pending = True
        self._activity, self._progress = "waiting", None

    def resting(self) -> None:
        """The reply is over."""
        self._pending = False
        self._rest()

    @property
    def shown(self) -> Reply:
        """The reply whose numbers there are."""
        return self._reply

    def show(self, reply: Reply) -> None:
        """Show the numbers of an earlier reply again."""
        self._reply = reply

    def elsewhere(self) -> None:
        """Another conversation is shown; what the engine holds is not of it."""
        self._elsewhere = True

    def mark(self, what: str) -> None:
        """The user has changed something now."""
        if self._activity == "writing":
            self._speeds.mark(what)

    def see(self, event: Answer) -> None:
        """Take the next event of a load or a reply."""
        reply = self._reply
        match event:
            case Text():
                pass
            case Round():
                self._activity = "writing"
                if self._clocks.jumped():
                    reply.slept = True
                reply.count(event)
                if reply.passes > 1 and not reply.slept:
                    self._speeds.add(len(event.tokens), event.seconds)
            case Prefilling(done, total):
                self._activity = "reading"
                self._progress = done / total if total else None
            case Prefilled():
                self._activity, self._progress = "writing", None
                reply.prompt, reply.ttft = event.prompt_tokens, event.seconds
            case LoadProgress():
                self._activity = "loading"
                self._progress = event.done / event.total if event.total else None
            case Loaded():
                self.pair, pair = event.pair, event.pair
                check = last_check(pair.target, pair.draft, pair.weights)
                self._self_test = "" if check is None else str(check)
                self._status = None
                if not event.kept_cache:
                    self._plain = None
                if self._activity == "loading":
                    self._rest()
            case Finished():
                reply.final = event.stats
                self._learn_plain(event.stats)
                self.resting()
            case Failed():
                if event.kind == "crashed":
                    self._status = None
                self._rest()
            case Status():
                self._status = event
                self._plain = event.plain_seconds or self._plain
                if event.pair is not None:
                    self.pair = event.pair
            case Notice():
                pass

    def _rest(self) -> None:
        ready = "no model" if self.pair is None else "ready"
        self._activity, self._progress = "waiting" if self._pending else ready, None

    def state(self) -> PanelState:
        """The numbers now, without those that the engine does not know of."""
        return replace(self._of_pair(), **self._of_reply(), **self._of_speed())

    def _of_pair(self) -> PanelState:
        pair, status = self.pair, self._status
        return PanelState(
            activity=self._activity,
            progress=self._progress,
            target=None if pair is None else pair.target,
            draft=None if pair is None else pair.draft,
            draft_off=None if pair is None else pair.draft_off,
            context_limit=None if pair is None else pair.context,
            memory_plan=None if pair is None else pair.planned,
            memory_used=None if status is None else status.memory,
            memory_limit=None if status is None else status.memory_limit,
            kernels="" if status is None else status.kernels,
            self_test=self._self_test,
        )

    def _of_reply(self) -> dict[str, Any]:
        reply, newest = self._reply, self._reply.newest
        drafted = sum(drafted for drafted, _ in reply.recent)
        used = reply.prompt + reply.tokens
        if not used and self._status is not None:
            used = self._status.cached_tokens
        if self._elsewhere:
            used = 0
        return {
            "acceptance_now": (
                sum(accepted for _, accepted in reply.recent) / drafted if drafted else None
            ),
            "acceptance": reply.accepted / reply.drafted if reply.drafted else None,
            "acceptance_by_position": tuple(
                a / d for a, d in zip(reply.accepted_at, reply.drafted_at, strict=True)
            ),
            "tokens_per_pass": reply.tokens / reply.passes if reply.passes else None,
            "tokens": reply.tokens,
            "passes": reply.passes,
            "drafter": newest.drafter if newest is not None and newest.drafted else None,
            "round_depth": None if newest is None else newest.depth,
            "why": self._why(),
            "context_used": used if self.pair is not None else None,
        }

    def _of_speed(self) -> dict[str, Any]:
        reply, final = self._reply, self._reply.final
        decoded = reply.tokens - reply.first
        speed = decoded / reply.decode if reply.decode > 0 and not reply.slept else None
        median, p95 = (
            None if reply.slept or seconds is None else 1e3 * seconds
            for seconds in (reply.latencies.quantile(0.5), reply.latencies.quantile(0.95))
        )
        if final is not None and reply.passes:
            speed = final.decode_tokens_per_s
            median, p95 = final.itl_ms_median, final.itl_ms_p95
        return {
            "tokens_per_s": self._speeds.now,
            "tokens_per_s_reply": speed,
            "plain_tokens_per_s": 1 / self._plain if self._plain else None,
            "speeds": self._speeds.values,
            "marks": tuple(Mark(at, what) for at, what in self._speeds.marks),
            "ttft_s": None if reply.slept else reply.ttft,
            "itl_ms_median": median,
            "itl_ms_p95": p95,
        }

    def _why(self) -> str:
        """Of the newest round; while a reply has none yet, nothing is known."""
        if self._reply.newest is not None:
            return self._reply.newest.why
        return "" if self._status is None or self._pending else self._status.why

    def _learn_plain(self, stats: ReplyStats) -> None:
        speed, over = stats.decode_tokens_per_s, stats.measured_speedup
        if speed and over:
            self._plain = over / speed
