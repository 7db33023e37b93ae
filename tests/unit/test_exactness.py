"""With speculation on, the text is what the target alone would have written."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from replies import assert_like_fresh, finish, plain_greedy, prompt_tokens

from macspec import Sampling, Session
from macspec.assets import prompts
from macspec.control import PLAIN, AcceptanceEstimate, Controller, CostCurve, Offer, Plan
from macspec.models import Pair

TOKENS = 32
CHATS = prompts()[:40]
FEW = CHATS[::5]
SOME = [pytest.param(n, marks=() if n < 1 else pytest.mark.slow) for n in range(len(FEW))]
"""Numbers of ``FEW``."""
GREEDY = Sampling(temperature=0)
SETTINGS = [(rule, method, depth)
            for rule, method in product(("block", "keyed", "match"), ("draft", "ngram"))
            for depth in range(1, 9)]  # fmt: skip


Plain = Callable[[Pair, Any, Sampling], tuple[int, ...]]


@pytest.fixture(scope="module")
def plain() -> Plain:
    """The tokens of plain decoding; the same reply is generated only once."""
    known: dict[tuple[int, str, Sampling], tuple[int, ...]] = {}

    def tokens(pair: Pair, chat: Any, sampling: Sampling) -> tuple[int, ...]:
        key = (id(pair), str(chat), sampling)
        if key not in known:
            session = Session(pair, method="off")
            known[key] = finish(session, chat, sampling, max_tokens=TOKENS).token_ids
        return known[key]

    return tokens


def reproducible() -> Iterator[Sampling]:
    """The ways of drawing under which the keyed rule promises equal tokens."""
    yield GREEDY
    yield Sampling(temperature=0.7, seed=11)
    yield Sampling(temperature=1.0, top_p=0.95, seed=12)


def check(pair: Pair, plain: Plain, chat: Any, settings: list[tuple[str, str, int]]) -> None:
    """All settings give the tokens of plain decoding, wherever equality is promised."""
    assert plain(pair, chat, GREEDY) == plain_greedy(pair, prompt_tokens(pair, chat), TOKENS)
    for sampling in reproducible():
        expected = plain(pair, chat, sampling)
        session = Session(pair)
        for rule, method, depth in settings:
            if not (sampling.greedy or rule == "keyed"):
                continue  # match repeats its text too; block is equal in distribution
            session.rule, session.method, session.depth = rule, method, depth
            got = finish(session, chat, sampling, max_tokens=TOKENS)
            assert got.token_ids == expected, (rule, method, depth, sampling)


@pytest.mark.parametrize("number", [0, 1])
def test_tokens_equal_plain_decoding(small: Pair, plain: Plain, number: int) -> None:
    check(small, plain, FEW[number], SETTINGS[number::7])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CHATS)))
def test_tokens_equal_plain_decoding_everywhere(
    pocket: Pair, small: Pair, plain: Plain, number: int
) -> None:
    check(small if number % 4 else pocket, plain, CHATS[number], SETTINGS[number % 9 :: 9])


def change_at_random(session: Session, rng: random.Random) -> None:
    session.method = rng.choice(["draft", "draft", "ngram", "off", "auto"])
    session.depth = rng.choice(["auto", 0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32])


@pytest.mark.parametrize("number", SOME)
def test_drafter_and_depth_may_change_between_any_two_rounds(
    small: Pair, plain: Plain, number: int
) -> None:
    rng = random.Random(number)
    for sampling in reproducible():
        expected = plain(small, FEW[number], sampling)
        session = Session(small, rule="keyed")
        ids: tuple[int, ...] = ()
        for event in session.reply(FEW[number], sampling, max_tokens=TOKENS):
            ids = getattr(event, "token_ids", ids)
            if rng.random() < 0.5:
                change_at_random(session, rng)
        assert ids == expected
        assert_like_fresh(session)


class Dice(Controller):
    """Plans at random, within what is offered."""

    def __init__(self, seed: int) -> None:
        super().__init__(CostCurve(), AcceptanceEstimate())
        self.rng = random.Random(seed)

    def choose(
        self, offers: Sequence[Offer], length: int, limit: int, depth: int | None = None
    ) -> Plan:
        open_ = [offer for offer in offers if min(offer.room, limit) > 0]
        self.last = PLAIN
        if open_ and self.rng.random() < 0.8:
            offer = self.rng.choice(open_)
            deep = self.rng.randint(1, min(offer.room, limit, 12))
            grows = offer.branches and self.rng.random() < 0.6
            branch = self.rng.randrange(deep) if grows else None
            self.last = Plan(offer.drafter, deep, length, offer.bucket, offer.unread, branch)
        return self.last

    @property
    def pipelines(self) -> bool:
        return self.rng.random() < 0.7


@pytest.mark.parametrize("number", SOME)
def test_whatever_the_controller_chooses(small: Pair, plain: Plain, number: int) -> None:
    for controller in (None, Dice(number)):
        session = Session(small, rule="keyed", controller=controller)
        assert session.decoder.try_trees() is None
        for sampling in reproducible():
            got = finish(session, FEW[number], sampling, max_tokens=TOKENS)
            assert got.token_ids == plain(small, FEW[number], sampling)
            assert_like_fresh(session)


def test_penalties_see_the_drafted_prefix(small: Pair, plain: Plain) -> None:
    sampling = Sampling(
        temperature=0.9, seed=5, repetition_penalty=1.3, presence_penalty=0.4,
        frequency_penalty=0.3, penalty_context=12, logit_bias=((40, 1.5),), top_k=50, min_p=0.01,
    )  # fmt: skip
    expected = plain(small, FEW[0], sampling)
    assert len(expected) > 10
    for rule, method in (("keyed", "draft"), ("match", "draft"), ("match", "ngram")):
        session = Session(small, rule=rule, method=method, depth=5)
        assert finish(session, FEW[0], sampling, max_tokens=TOKENS).token_ids == expected


def test_the_seed_repeats_a_reply_under_every_rule(small: Pair) -> None:
    for rule in ("block", "keyed", "match"):
        # Under block the depth has a part in the text, and auto depends on the clock.
        session = Session(small, rule=rule, method="draft", depth=3)
        first = finish(session, FEW[0], Sampling(temperature=1.0), max_tokens=24)
        again = Sampling(temperature=1.0, seed=first.seed)
        assert finish(session, FEW[0], again, max_tokens=24).token_ids == first.token_ids


@pytest.mark.parametrize("number", SOME[:4])
def test_match_emits_what_keyed_emits(small: Pair, plain: Plain, number: int) -> None:
    sampling = Sampling(temperature=0.8, seed=21)
    expected = plain(small, FEW[number], sampling)
    for method, depth in product(("draft", "ngram"), (1, 4, 8)):
        session = Session(small, rule="match", method=method, depth=depth)
        assert finish(session, FEW[number], sampling, max_tokens=TOKENS).token_ids == expected
