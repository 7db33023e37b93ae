"""A round on the device, its result, and the reply it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from .constraint import Constraint
from .control import Plan
from .drafters import Proposal
from .errors import ModelBrokenError
from .events import Committed, Emitted, Event, Prefilled, Round, Text, TokenLogprob
from .models.files import broken
from .parts import ANSWER
from .stats import ReplyCounter
from .text import Piece, TextStream, joined
from .verification import TreeVerdict, Verdict

RESUMED = 1 << 12
"""More passes than a reply takes for a token."""

LEAST = -9999.0
"""Stands for the log-probability of what cannot be, which JSON has no number for."""


class Dispatcher:
    """Starts evaluations without waiting, and remembers when the first one began."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.began: float | None = None

    def __call__(self, *arrays: mx.array) -> None:
        if self.began is None:
            self.began = self._clock()
        mx.async_eval(*arrays)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What the target made of a round."""

    path: list[int]
    """The accepted tokens, by their place in the proposal."""
    tokens: list[int]
    """Those, and the target's own token after them."""

    @property
    def accepted(self) -> int:
        return len(self.path)


@dataclass(frozen=True, slots=True)
class InFlightRound:
    """A round that was dispatched and whose result has not been read yet."""

    plan: Plan
    drafted: int
    """Tokens really drafted, a branch's included."""
    outcome: mx.array
    """int32 [2 + drafted]: accepted, next token, drafted tokens; of a tree then the path."""
    token: mx.array
    """uint32 [1]: the next token, for a pass that is launched before the host knows it."""
    began: float
    """When the device was first given work for it."""
    tree: bool
    prefetched: bool
    """Whether it was launched before the result of the round ahead was known."""
    logits: mx.array | None = None
    """[rows, V], where the reply wants log-probabilities."""
    landed: Callable[[], None] = lambda: None
    """Called once the result is read; raises if it is not to be trusted."""

    @property
    def depth(self) -> int:
        """Tokens of the drafted chain."""
        return self.drafted - self.tree

    @classmethod
    def launch(
        cls,
        plan: Plan,
        proposal: Proposal,
        verdict: Verdict,
        dispatch: Dispatcher,
        prefetched: bool = False,
        logits: mx.array | None = None,
        landed: Callable[[], None] = lambda: None,
    ) -> InFlightRound:
        token = verdict.token.reshape(1)
        parts, drafted = [verdict.accepted.reshape(1), token], proposal.tokens.shape[0]
        if drafted:
            parts.append(proposal.tokens)
        tree = isinstance(verdict, TreeVerdict)
        if isinstance(verdict, TreeVerdict):
            parts.append(verdict.path)
        outcome = mx.concatenate([part.astype(mx.int32) for part in parts])
        dispatch(outcome)
        assert dispatch.began is not None
        began = dispatch.began
        return cls(plan, drafted, outcome, token, began, tree, prefetched, logits, landed)

    def wait(self) -> RoundResult:
        """Wait for the result: the one host synchronisation of a round."""
        outcome: Any = self.outcome.tolist()
        self.landed()
        accepted, token, *rest = outcome
        if accepted < 0:
            raise ModelBrokenError(
                "the target's logits are not numbers: its weights are damaged, or too large for "
                "their precision; load it again, or choose another conversion of the model"
            )
        path = rest[self.drafted :][:accepted] if self.tree else list(range(accepted))
        return RoundResult(path, [*(rest[node] for node in path), token])


@dataclass(frozen=True, slots=True)
class DoneRound:
    """A round as far as the reply took it."""

    flight: InFlightRound
    result: RoundResult
    tokens: list[int]
    """Fewer than in the result where the reply ended among them."""
    pieces: list[Piece]
    """The text that they complete."""
    seconds: float
    idle: float
    """As in ``events.Round``."""

    def events(self, reply: Reply, scored: tuple[TokenLogprob, ...]) -> Iterator[Event]:
        """Count the round and emit its events; ``scored``: of its tokens, if that is wanted."""
        counter, plan, tokens = reply.counter, self.flight.plan, self.tokens
        accepted, drafted = self.result.accepted, self.flight.depth
        if len(tokens) <= accepted:
            accepted = drafted = len(tokens)
        done = Round(
            tokens=tuple(tokens),
            drafter=plan.drafter,
            depth=plan.depth,
            drafted=drafted,
            accepted=accepted,
            seconds=self.seconds,
            idle_seconds=self.idle,
            expected=plan.expected,
            why=plan.why,
            branched=self.flight.tree,
            cost=plan.cost,
            logprobs=scored,
        )
        counter.see(done)
        if counter.passes == 1:
            yield Prefilled(
                counter.prompt_tokens,
                counter.cached_tokens,
                self.seconds,
                counter.dropped_messages,
                reply.seed,
            )
        origins = (plan.drafter if i < accepted else None for i in range(len(tokens)))
        emitted = tuple(map(Emitted, tokens, origins))
        for piece in self.pieces or [Piece(reply.stream.part)]:
            yield Text(piece.text, emitted, tuple(piece.spans), piece.part)
            emitted = ()
        yield done


def chain_part(path: Sequence[int]) -> int:
    """How many tokens of a path are the first of the drafter's own chain."""
    return sum(node == place for place, node in enumerate(path))


@dataclass(slots=True)
class Reply:
    """The state of one reply, from its prompt to its last token."""

    stream: TextStream
    stop_ids: frozenset[int]
    limit: int
    """Most tokens that may be emitted."""
    limit_reason: str
    """The reason for ending there: length or context."""
    seed: int
    counter: ReplyCounter
    since: float
    """When it was asked for, then when the newest tokens were known, by the decoder's clock."""
    passes: int = 0
    """Passes launched so far; gives each its own noise."""
    forced: Sequence[int] | None = None
    """The tokens to emit, whatever the target chooses; ``limit`` is their number."""
    learn: bool = True
    """Whether past replies are drafted from, and this one is added to them."""
    logprobs: int | None = None
    """How many of the most likely tokens to report with each token; None: no log-probabilities."""
    constraint: Constraint | None = None
    """What the answer must be; None: anything."""
    answer: list[bool] = field(default_factory=list)
    """For each token of the newest round, whether it belongs to the answer."""
    ids: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why the reply is over; None while it is not."""

    def resume(self, committed: Committed) -> None:
        """Take what another process has committed; passes go on with noise that it did not use."""
        for it in committed.tokens:
            self.take([it.id], int(it.drafter is not None), it.drafter)
        self.passes = RESUMED * len(committed.tokens)

    def commit(
        self, flight: InFlightRound, result: RoundResult, now: float, first: bool
    ) -> DoneRound:
        """Take a round's result, known ``now``; ``first``: no round of the reply came just before,
        so that the device was not idle for its sake."""
        tokens, pieces = self.take(result.tokens, result.accepted, flight.plan.drafter)
        since, self.since = self.since, now
        idle = 0.0 if first else max(flight.began - since, 0.0)
        return DoneRound(flight, result, tokens, pieces, now - since, idle)

    def take(
        self, tokens: Sequence[int], accepted: int = 0, drafter: str | None = None
    ) -> tuple[list[int], list[Piece]]:
        """Commit the tokens of a round, of which the drafter guessed ``accepted``, up to where the
        reply ends; return them and the text that they complete."""
        kept: list[int] = []
        pieces: list[Piece] = []
        self.answer = []
        with broken("the tokenizer cannot write this reply"):
            for token in tokens:
                guess = drafter if len(kept) < accepted else None
                kept.append(token)
                if token in self.stop_ids:
                    self.reason = "end"
                else:
                    pieces += self.stream.push(token, guess)
                    self.answer.append(self.stream.part == ANSWER)
                    if self.stream.stopped:
                        self.reason = "stop"
                    elif len(self.ids) + len(kept) >= self.limit:
                        self.reason = self.limit_reason
                if self.reason is not None:
                    pieces += self.stream.finish()
                    break
                if self.constraint is not None and self.constraint.take(token, self.stream.part):
                    break
        self.ids += kept
        return kept, joined(pieces)

    def scored(self, done: DoneRound) -> tuple[TokenLogprob, ...]:
        """The target's log-probabilities of a round's tokens that belong to the answer.

        They take another synchronisation, so nothing is computed unless they are wanted.
        """
        every, tokens = done.flight.logits, done.tokens
        if every is None or self.logprobs is None:
            return ()
        # Each token was chosen from the row after the one before it.
        rows = [0, *(node + 1 for node in done.result.path)][: len(tokens)]
        logits = every[mx.array(rows)].astype(mx.float32)
        log_p = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        own: Any = mx.take_along_axis(log_p, mx.array([*tokens])[:, None], axis=-1)[:, 0].tolist()
        best = mx.argsort(-log_p, axis=-1)[:, : self.logprobs]
        ids: Any = best.tolist()
        values: Any = mx.take_along_axis(log_p, best, axis=-1).tolist()
        text = self.stream.token_text
        return tuple(
            TokenLogprob(
                text(tokens[at]),
                max(own[at], LEAST),
                tuple((text(i), max(p, LEAST)) for i, p in zip(ids[at], values[at], strict=True)),
            )
            for at, answers in enumerate(self.answer)
            if answers
        )
