"""The lossless self-test: with speculation or without, the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from ..forks import first_difference
from ..kernels import Kernels
from ..models import Pair
from ..models.cached import CachedModel
from ..models.template import Template
from ..nearties import epsilon
from ..noise import TARGET, Noise
from ..sampling import Sampling
from ..session import Session

GREEDY = Sampling(temperature=0)
KEYED = Sampling(temperature=0.8, seed=20)
DEPTH = 4

Message = dict[str, str]

Question = list[Message] | str
"""A conversation, or raw text where the target has no chat template."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two replies that should be equal part, and how close the choice was."""

    position: int
    """Index in the reply of the first token that differs."""
    plain: int | None
    """The token without speculation; None: that reply was over."""
    speculative: int | None
    gap: float | None
    """Best score minus the lower score of the two tokens; None if a reply only ended early."""
    epsilon: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.gap is not None and self.gap <= self.epsilon


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt, with one way to draft and one way to draw."""

    prompt: int
    drafter: str
    drawing: str
    """greedy or keyed."""
    tokens: int
    acceptance: float | None
    fork: Fork | None

    @property
    def lossless(self) -> bool:
        """Whether the replies are equal but for rounding."""
        return self.fork is None or self.fork.near_tie


def self_test(
    pair: Pair,
    conversations: list[list[Message]],
    *,
    max_tokens: int,
    kv_bits: int | None = None,
    kernels: Kernels | str = "auto",
) -> Iterator[Trial]:
    """Reply to every conversation plainly and with each drafter, greedy and keyed.

    Args:
        pair: from ``load_pair``.
        conversations: each ends with a user's turn.
        max_tokens: longest reply.
        kv_bits, kernels: as for ``Session``.
    """
    session = Session(pair, kv_bits=kv_bits, kernels=kernels)
    drafters = ("draft", "ngram") if pair.draft is not None else ("ngram",)
    template = Template(pair)
    for number, messages in enumerate(conversations, 1):
        question: Question = messages
        if pair.target.tokenizer.has_chat_template:
            prompt = template.tokens(messages)
        else:
            question = messages[-1]["content"]
            prompt = template.raw(question)
        for drawing, sampling in (("greedy", GREEDY), ("keyed", KEYED)):
            session.rule = "keyed"
            plain, _ = _reply(session, question, sampling, "off", max_tokens)
            for drafter in drafters:
                ids, acceptance = _reply(session, question, sampling, drafter, max_tokens)
                position = first_difference(plain, ids)
                fork = None
                if position is not None:
                    read = [*prompt, *plain[:position]]
                    fork = explain(position, plain, ids, *_scores(pair, read, sampling, kv_bits))
                yield Trial(number, drafter, drawing, len(ids), acceptance, fork)


def explain(
    position: int,
    plain: tuple[int, ...],
    speculative: tuple[int, ...],
    scores: list[float],
    epsilon: float,
) -> Fork:
    """The fork at ``position``, given the scores [V] that the token there is chosen by."""
    one = plain[position] if position < len(plain) else None
    other = speculative[position] if position < len(speculative) else None
    gap = None
    if one is not None and other is not None:
        gap = max(scores) - min(scores[one], scores[other])
    return Fork(position, one, other, gap, epsilon)


def _reply(
    session: Session, question: Question, sampling: Sampling, method: str, max_tokens: int
) -> tuple[tuple[int, ...], float | None]:
    session.method = method
    session.depth = 0 if method == "off" else DEPTH
    raw = isinstance(question, str)
    for _ in session.reply(question, sampling, max_tokens=max_tokens, raw=raw):
        pass
    if session.finished is None:
        raise RuntimeError("the reply did not finish")
    return session.finished.token_ids, session.finished.stats.acceptance


def _scores(
    pair: Pair, tokens: list[int], sampling: Sampling, kv_bits: int | None
) -> tuple[list[float], float]:
    """What the token after ``tokens`` is chosen by, [V] in float32, and the near tie's epsilon."""
    target = CachedModel(pair.target.module, pair.vocabulary, kv_bits=kv_bits)
    logits = target.logits(mx.array(tokens, mx.uint32), rows=1)
    row = sampling.scores(logits.astype(mx.float32))
    if sampling.seed is not None:
        row = row + Noise(sampling.seed, 0, len(tokens), 1, pair.vocabulary).gumbel(TARGET)
    return cast("list[float]", row[0].tolist()), epsilon(logits, sampling.temperature)
