"""A session: one conversation with a pair of models."""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import mlx.core as mx

from .choices import MODELS, Think, check_think
from .constraint import Constraint
from .control import AcceptanceEstimate, Controller, ControlState, CostCurve
from .decode import Decoder
from .drafters import Corpus, DraftModel, NGram, Suffix
from .errors import BadOptionError, GpuLostError
from .events import WENT_ON, Committed, Event, Finished, Notice, Round
from .kernels import Kernels
from .learned import LONGEST, measure
from .metal.faults import is_fault, is_innocent
from .metal.start import kernels_for
from .models.memory import wired
from .models.pair import Pair
from .parts import PartReader
from .prompt import Message, Prompt, Prompting
from .rounds import Reply
from .sampling import Sampling
from .stats import ReplyCounter, SessionStats
from .text import TextStream

BUFFER_CACHE = 512 * 2**20
"""Bytes of freed buffers that MLX may keep for reuse."""

LEAD = 16
"""Tokens of the prompt's end that stand before a prediction, so that its start is found."""


class Session:
    """One conversation with a pair of models.

    ``method``, ``depth``, ``rule`` and ``sampling`` can be set at any time and take effect in the
    next round, a seed in the next reply. All calls must come from one thread.

    Args:
        pair: from ``load_pair``.
        method: one of ``choices.METHODS``.
        depth: auto, or the number of tokens drafted in a round, 0 to 32.
        rule: block, keyed or match.
        trees: allow a branch in the draft model's chain where that is exact and pays.
        kv_bits: quantize the target's keys and values to this many bits, from the first token on.
        ngram: the n-gram drafter, to set its window and copy length.
        state: costs and acceptance learned by earlier sessions, saved by ``remember``; None:
            start afresh and save nothing.
        corpus: past replies to draft from, extended by this session's; None: none.
        controller: chooses what each round does; None: the standard one.
        clock: seconds, for the statistics.
        kernels: from ``kernels_for``, or its mode: auto, off or strict.

    Raises:
        BadOptionError: a value is outside its range, or impossible with this pair.
    """

    def __init__(
        self,
        pair: Pair,
        *,
        method: str = "auto",
        depth: int | str = "auto",
        rule: str = "block",
        trees: bool = True,
        kv_bits: int | None = None,
        ngram: NGram | None = None,
        state: ControlState | None = None,
        corpus: Corpus | None = None,
        controller: Controller | None = None,
        clock: Callable[[], float] = time.perf_counter,
        kernels: Kernels | str = "auto",
    ) -> None:
        self.pair = pair
        self.kernels = (
            kernels_for(pair, kernels, kv_bits=kv_bits) if isinstance(kernels, str) else kernels
        )
        self.stats = SessionStats()
        self.finished: Finished | None = None
        """The end of the last reply, interrupted or not."""
        self._clock = clock
        self._state, self._corpus = state, corpus
        self.controller = controller or _controller(pair, state)
        self._suffix = Suffix(corpus)
        lookups = [ngram or NGram(), self._suffix]
        self.decoder = Decoder(pair, kv_bits, lookups, self.controller, clock, self.kernels)
        self._prompting = Prompting(pair)
        self._noticed: set[str] = set()
        self._expected: Sequence[int] = ()
        self._kv_bits = kv_bits
        self._open: weakref.ref[Generator[Event, None, None]] | None = None
        self._set(trees=trees)
        self.method, self.depth, self.rule = method, depth, rule
        mx.set_cache_limit(BUFFER_CACHE)

    def sibling(self, clock: Callable[[], float]) -> Session:
        """Another conversation with the pair: caches of its own, and what is learned in common."""
        controller = Controller(self.controller.curve, self.controller.acceptance)
        return Session(
            self.pair,
            trees=self.decoder.settings.trees,
            kv_bits=self._kv_bits,
            corpus=self._corpus,
            controller=controller,
            clock=clock,
            kernels=self.kernels,
        )

    @property
    def method(self) -> str:
        return self.decoder.settings.method

    @method.setter
    def method(self, method: str) -> None:
        self.check(method)
        self._set(method=method)

    def check(self, method: str) -> None:
        """Raise a BadOptionError if a method is not possible with this pair."""
        if method in MODELS and method not in self.decoder.portfolio:
            what = "draft model" if method == DraftModel.name else f"{method} head"
            why = self.decoder.draft_off or f"this pair has no {what}"
            raise BadOptionError(f"method {method} is not possible: {why}")

    @property
    def depth(self) -> int | str:
        return self.decoder.settings.depth

    @depth.setter
    def depth(self, depth: int | str) -> None:
        self._set(depth=depth)

    @property
    def rule(self) -> str:
        return self.decoder.settings.rule

    @rule.setter
    def rule(self, rule: str) -> None:
        self._set(rule=rule)

    @property
    def sampling(self) -> Sampling:
        return self.decoder.settings.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._set(sampling=sampling)

    @property
    def objective(self) -> str:
        return self.decoder.settings.objective

    @objective.setter
    def objective(self, objective: str) -> None:
        self._set(objective=objective)

    def _set(self, **changes: Any) -> None:
        self.decoder.settings = replace(self.decoder.settings, **changes)

    def reply(
        self,
        messages: str | Sequence[Message] | Prompt,
        sampling: Sampling | None = None,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        raw: bool = False,
        think: Think = None,
        on_overflow: Literal["drop", "refuse"] = "drop",
        forced: Sequence[int] | None = None,
        resume: bool = False,
        learn: bool = True,
        prediction: Sequence[int] = (),
        logprobs: int | None = None,
        constraint: Constraint | None = None,
        committed: Committed | None = None,
    ) -> Generator[Event, None, None]:
        """Answer a conversation, after closing an unfinished earlier reply.

        The cache of earlier replies is reused as far as the tokens agree. Closing the iterator at
        any event ends the reply there and leaves the session ready for the next one.

        Args:
            messages: the whole conversation, each with role and content; or one user message; or
                a prompt that is ready.
            sampling: sets ``self.sampling``.
            max_tokens: end after this many tokens; None: when the context is full.
            stop: end before any of these strings.
            raw: continue the text as it is, without a chat template.
            think: reasoning on or off, or its effort: low, medium or high; None: the template's
                default.
            on_overflow: drop the oldest turns of a history that exceeds the context, or refuse it.
            forced: emit these tokens whatever the target chooses, at the real cost: for measuring.
            resume: continue the last message, which is the assistant's; its reasoning is in
                ``reasoning`` beside ``content``.
            learn: draft from past replies, and add this one to them.
            prediction: tokens that the reply will probably repeat; look-ups draft from them.
            logprobs: report the target's log-probability of each token, and of so many of the most
                likely ones; None: of none.
            constraint: what the answer must be, made for this reply; None: anything.
            committed: the reply's beginning, from another process; its text is not emitted again.

        Yields:
            Notice, Prefilling and Prefilled, then Text and Round for each round, then Finished.

        Raises:
            BadOptionError, ContextOverflowError: at once, before the first event.
            GpuLostError: the GPU computes nothing more for this process.
        """
        self.close()
        if sampling is not None:
            self.sampling = sampling
        check_think(think)
        if max_tokens is not None and max_tokens < 1:
            raise BadOptionError(f"max-tokens is {max_tokens}; it must be at least 1")
        if forced is not None and not forced:
            raise BadOptionError("forced needs at least one token")
        if any(not text for text in stop):
            raise BadOptionError("a stop string is empty; leave it out")
        start = self._clock()
        if isinstance(messages, Prompt):
            prompt = messages
        else:
            prompt = self._prompt(messages, max_tokens, raw, think, on_overflow, resume)
        room = self.pair.context - len(prompt.tokens)
        limit = room if max_tokens is None else min(max_tokens, room)
        if forced is not None:
            limit = min(limit, len(forced))
        seed = self.sampling.seed
        tokenizer = self.pair.target.tokenizer
        reply = Reply(
            stream=TextStream(tokenizer, stop, PartReader(self._prompting.format, prompt.part)),
            stop_ids=self.pair.stop_ids,
            limit=limit,
            limit_reason="length" if forced or limit == max_tokens else "context",
            seed=secrets.randbits(32) if seed is None else seed,
            counter=ReplyCounter(len(prompt.tokens), dropped_messages=prompt.dropped_messages),
            since=start,
            forced=forced,
            learn=learn,
            logprobs=logprobs,
            constraint=constraint,
        )
        if committed is not None:
            reply.seed = committed.seed
            reply.resume(committed)
        # Found at once: where the reply begins, the prompt has just ended.
        start_of_reply = prompt.tokens[-LEAD:] if prediction else []
        self._expected = [*start_of_reply, *prediction]
        target = self.decoder.target
        limits = (target.cache.reason, target.absorbed.reason, self.decoder.draft_off)
        notices = [*filter(None, limits), *prompt.notices]
        events = self._run(reply, prompt, notices)
        self._open = weakref.ref(events)
        return events

    def close(self) -> None:
        """End an unfinished reply, as if its iterator had been closed."""
        events = self._open() if self._open is not None else None
        if events is not None:
            events.close()

    def _run(
        self, reply: Reply, prompt: Prompt, notices: Sequence[str]
    ) -> Generator[Event, None, None]:
        decoder = self.decoder
        self._suffix.corpus = self._corpus if reply.learn else None
        decoder.portfolio.expect(self._expected)
        with wired():
            try:
                yield from self._once(notices)
                while reply.reason is None:
                    try:
                        yield from self._rounds(reply, prompt)
                    except RuntimeError as error:
                        self.recover(error)
                        yield from self._once([WENT_ON])
            finally:
                # Drain what was dispatched, then forget what was not committed.
                try:
                    mx.synchronize()
                    self.kernels.in_use.clear()
                except RuntimeError as error:
                    self.recover(error)
                finally:
                    decoder.rollback(len(decoder.tokens))
                    self.finished = self._finish(reply)
                    self.stats.add(self.finished.stats)
                    if self._corpus is not None and reply.forced is None and reply.learn:
                        self._corpus.add(reply.ids)
        yield self.finished

    def _rounds(self, reply: Reply, prompt: Prompt) -> Iterator[Event]:
        """Read what is committed, then decode until the reply is over."""
        text = [*prompt.tokens, *reply.ids]
        yield from self.decoder.prefill(reply, text, prompt.boundaries)
        for event in self.decoder.decode(reply):
            yield event
            if isinstance(event, Round):
                yield from self._once(self._spent())

    def recover(self, error: RuntimeError) -> None:
        """After an error of MLX: caches are read anew if it was a fault of the GPU. If macspec's
        kernels ran, they are used no more and, where they can have caused it, blamed; the session
        can go on.

        Raises:
            GpuLostError: there is a fault though they are out of use.
            RuntimeError: the error itself, if it is no fault or none of them ran.
        """
        if not is_fault(error):
            raise error
        if self.decoder.stale:  # by a fault that another conversation has met
            return
        if not self.kernels.blame(remember=not is_innocent(error)):
            if self.kernels.retired:
                raise GpuLostError from error
            raise error

    def score_margin(
        self,
        messages: str | Sequence[Message],
        before: Sequence[int],
        tokens: Sequence[int],
        *,
        max_tokens: int | None = None,
        raw: bool = False,
        think: Think = None,
    ) -> tuple[float, float]:
        """How close a choice in a reply was, in a pass of one row with nothing drafted.

        Args:
            before: the reply's tokens before the choice.
            tokens: the tokens chosen there by different replies.

        Returns:
            The best score minus the lowest one of the tokens, and the rounding tolerance: how far
            apart scores may be and still swap places.

        Raises:
            BadOptionError: there are no such tokens; or as ``reply``.
        """
        self.close()
        if not tokens or not all(0 <= token < self.pair.vocabulary for token in (*before, *tokens)):
            raise BadOptionError("there is no such token in the vocabulary")
        prompt = self._prompt(messages, max_tokens, raw, think, "drop", False)
        if len(prompt.tokens) + len(before) >= self.pair.context:
            raise BadOptionError("the context ends before that position of the reply")
        with wired():
            try:
                return self.decoder.score_margin([*prompt.tokens, *before], tokens)
            except RuntimeError as error:
                self.recover(error)
                return self.decoder.score_margin([*prompt.tokens, *before], tokens)

    def count_tokens(
        self, messages: str | Sequence[Message], *, raw: bool = False, think: Think = None
    ) -> tuple[int, int, int]:
        """Tokens of the last message, of the whole prompt, and of the prompt without what may be
        dropped from it; errors as ``reply``."""
        return self._prompting.count(messages, raw=raw, think=think)

    def _prompt(
        self,
        messages: str | Sequence[Message],
        max_tokens: int | None,
        raw: bool,
        think: Think,
        on_overflow: Literal["drop", "refuse"],
        resume: bool,
    ) -> Prompt:
        context = self.pair.context
        if raw:
            return self._prompting.raw(messages, context)
        reserve = min(context // 4, context if max_tokens is None else max_tokens)
        return self._prompting.chat(
            messages,
            context,
            reserve,
            think=think,
            on_overflow=on_overflow,
            resume=resume,
            boundaries=self.decoder.checkpoints,
        )

    def _spent(self) -> list[str]:
        """Notices of draft models and heads."""
        models = self.decoder.portfolio.models(self.method)
        return [*filter(None, (it.stepper.notice(self.decoder.tokens) for it in models))]

    def _once(self, notices: Sequence[str]) -> Iterator[Event]:
        for text in notices:
            if text not in self._noticed:
                self._noticed.add(text)
                yield Notice(text)

    def change_draft(self, pair: Pair, state: ControlState | None = None) -> None:
        """Switch to the draft model of another pair with the same target, whose cache stays.

        A method that the new pair lacks becomes ``auto``.

        Raises:
            ValueError: the target differs.
        """
        if pair.target is not self.pair.target:
            raise ValueError("a session keeps its target")
        self.close()
        self._prompting = Prompting(pair)
        self.pair, self._state = pair, state
        self.controller = self.decoder.controller = _controller(pair, state)
        self.decoder.change_draft(pair)
        if self.method in MODELS and self.method not in self.decoder.portfolio:
            self.method = "auto"

    @property
    def cached_tokens(self) -> int:
        return len(self.decoder.tokens)

    def forget(self) -> None:
        """Empty the cache: the next reply reads its whole prompt."""
        self.close()
        self.decoder.rollback(0)
        self.decoder.tokens = []

    def measure(self, longest: float = LONGEST) -> Iterator[None]:
        """Measure missing costs in idle moments, for so many seconds; it can be left after any
        step."""
        self.close()
        self.decoder.renew()
        return _wired(measure(self.decoder, longest))

    def remember(self) -> None:
        """Save what was learned for later sessions; call it when idle and before leaving."""
        if self._state is not None and not self.kernels.retired:  # costs are of these kernels
            self._state.save(self.controller.curve, self.controller.acceptance)
        if self._corpus is not None:
            self._corpus.save()

    @property
    def thinks(self) -> bool:
        return self._prompting.thinks

    @property
    def efforts(self) -> tuple[str, ...]:
        return self._prompting.efforts

    @property
    def why(self) -> str:
        """The reason for the newest round's choice, in one sentence."""
        return self.decoder.why

    def _finish(self, reply: Reply) -> Finished:
        middle = len(self.decoder.tokens) - len(reply.ids) // 2
        reply.counter.plain_seconds = self.controller.curve.seconds(middle)
        return Finished(
            reason=reply.reason or "interrupted",
            text=reply.stream.text,
            token_ids=tuple(reply.ids),
            seed=reply.seed,
            rule=self.rule,
            method=self.method,
            depth=self.depth,
            stats=reply.counter.stats(),
        )


def _wired(steps: Iterator[None]) -> Iterator[None]:
    """The steps, each with the models' memory wired."""
    over = False
    while not over:
        with wired():
            over = next(steps, True) is True
        if not over:
            yield


def _controller(pair: Pair, state: ControlState | None) -> Controller:
    """A controller that knows the sizes of the models and the learned state."""
    steps = {}
    if pair.draft is not None:
        # Until it is measured: memory traffic, and a floor for what every pass costs.
        draft, target = pair.draft.estimate, pair.target.estimate
        steps[DraftModel.name] = 0.02 + draft.active / target.active
    if pair.head is not None:
        steps[pair.head.kind] = 0.02 + pair.head.step_bytes / pair.target.estimate.active
    curve, acceptance = CostCurve(steps), AcceptanceEstimate()
    if state is not None:
        state.load(curve, acceptance)
    return Controller(curve, acceptance)
