"""The lossless self-test: with speculation or without, the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..forks import Fork, explain, first_difference
from ..kernels import Kernels
from ..models import Pair
from ..models.template import Template
from ..nearties import scores
from ..sampling import Sampling
from ..session import Session

GREEDY = Sampling(temperature=0)
KEYED = Sampling(temperature=0.8, seed=20)
DEPTH = 4

Message = dict[str, str]

Question = list[Message] | str
"""A conversation, or raw text where the target has no chat template."""


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
                    fork = explain(position, plain, ids, *scores(pair, read, sampling, kv_bits))
                yield Trial(number, drafter, drawing, len(ids), acceptance, fork)


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
