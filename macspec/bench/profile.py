"""Where a round's time goes, by waiting for the device after each part of it.

The waiting is what a measured reply must not have: plain rounds no longer overlap, and the host
can prepare nothing ahead. So a profile is of its own replies, and tells shares and not speeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from ..control import Plan
from ..decoding import Decoder
from ..drafters import Proposal
from ..events import Round
from ..flight import Dispatcher, Flight
from ..models import Pair
from ..noise import Noise
from ..reply import Reply
from ..sampling import Sampling
from ..session import Session
from ..verification import Verdict
from .arm import Question
from .way import Way


@dataclass(slots=True)
class Split:
    """Seconds of the rounds that read no prompt."""

    rounds: int = 0
    draft: float = 0.0
    verify: float = 0.0
    whole: float = 0.0

    @property
    def host(self) -> float:
        """The rest: choosing, committing, text, events."""
        return max(self.whole - self.draft - self.verify, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Milliseconds a round, ready for JSON."""
        each = 1e3 / max(self.rounds, 1)
        return {
            "rounds": self.rounds,
            "draft_ms": self.draft * each,
            "verify_ms": self.verify * each,
            "host_ms": self.host * each,
            "round_ms": self.whole * each,
        }


class SplitDecoder(Decoder):
    """A decoder that waits for what it drafted before it verifies, and then for the verdict."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.parts: list[tuple[float, float]] = []
        """Seconds of drafting and verifying, of each round of the reply."""
        self._began = 0.0

    def launch(self, reply: Reply, plan: Plan, behind: Flight | None = None) -> Flight:
        self._began = self.clock()
        return super().launch(reply, plan, behind)

    def ahead(self, reply: Reply, flight: Flight, plan: Plan) -> bool:
        return False

    def verify(
        self,
        proposal: Proposal,
        noise: Noise | None,
        token: mx.array | None,
        dispatch: Dispatcher,
    ) -> Verdict:
        mx.eval(proposal.tokens)
        drafted = self.clock()
        verdict = super().verify(proposal, noise, token, dispatch)
        mx.eval(verdict.accepted, verdict.token)
        self.parts.append((drafted - self._began, self.clock() - drafted))
        return verdict


class SplitSession(Session):
    """A session that decodes with it."""

    decoder_type = SplitDecoder


def profile(
    pair: Pair,
    way: Way,
    questions: Sequence[Question],
    sampling: Sampling,
    clock: Callable[[], float] = time.perf_counter,
) -> Split:
    """The split of one way to write, over the replies to some questions, which run to their limit.

    The first of them only warms up, if there are others.
    """
    session = way.session(replace(pair, stop_ids=frozenset()), clock, kind=SplitSession)
    decoder = session._decoder
    assert isinstance(decoder, SplitDecoder)
    split = Split()
    for number, question in enumerate(questions):
        session.forget()
        decoder.parts.clear()
        events = session.reply(
            question.asked,
            replace(sampling, seed=number),
            max_tokens=question.max_tokens,
            raw=question.task.raw,
            forced=question.forced,
        )
        whole = [event.seconds for event in events if isinstance(event, Round)]
        if number == 0 and len(questions) > 1:
            continue
        for seconds, (draft, verify) in list(zip(whole, decoder.parts, strict=False))[1:]:
            split.rounds += 1
            split.draft += draft
            split.verify += verify
            split.whole += seconds
    return split
