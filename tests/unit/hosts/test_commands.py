"""What rank 0 tells the others is enough to hold their caches in step: both are in this process,
each with a whole model, and the tokens go from one to the other."""

from __future__ import annotations

import gc
import itertools
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from headfiles import head_of
from replies import leaves, live
from test_decoding import GREEDY, KEYED, PROMPT, session_of, tokens_of
from test_exactness import Dice
from tinymodels import tiny

from macspec import Round, Session
from macspec.errors import ModelNotFoundError
from macspec.hosts import follower
from macspec.hosts.follower import Follower
from macspec.hosts.model import LeadModel, SharedModel
from macspec.hosts.sharding import TENSOR
from macspec.models import Pair
from macspec.models.cached import CachedModel


class Wire:
    """In place of a group: commands wait for the follower until somebody asks for an answer."""

    core: Any = None
    key = "a wire"

    def __init__(self, pair: Pair, module: Any) -> None:
        self.whole = pair.target
        self.follower = Follower(None, None)  # type: ignore[arg-type]
        self.follower._targets[1] = replace(pair.target, module=module)
        self.commands: deque[tuple[str, tuple[Any, ...]]] = deque()
        self.tokens: deque[mx.array] = deque()
        self.told: list[str] = []

    def tell(self, name: str, *arguments: Any) -> None:
        self.told.append(name)
        self.commands.append((name, arguments))

    ask = tell

    def agree(self, asked: Any, own: Any) -> None:
        assert self.follow() == own

    def follow(self) -> Any:
        """Have the follower do what it was told, and return its last answer."""
        answer = None
        while self.commands:
            name, arguments = self.commands.popleft()
            answer = getattr(self.follower, f"_do_{name}")(*arguments)
        return answer

    def model(self, module: Any, vocabulary: int, **settings: Any) -> CachedModel:
        return LeadModel(self, 1, module, vocabulary, **settings)  # type: ignore[arg-type]


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[deque[mx.array]]:
    """The tokens that rank 0 has given to passes that the follower has not built yet."""
    tokens: deque[mx.array] = deque()

    def entering(model: SharedModel, own: mx.array) -> mx.array:
        if isinstance(model, LeadModel):
            tokens.append(own)
            return own
        given = tokens.popleft()
        assert given.shape == own.shape
        return given

    monkeypatch.setattr(SharedModel, "entering", entering)
    yield tokens
    assert not tokens


def spread_out(pair: Pair, name: str, **options: Any) -> tuple[Session, Wire]:
    """A session whose target has a follower."""
    wire = Wire(pair, tiny(name))
    target = replace(pair.target, spread=wire)  # type: ignore[arg-type]
    return session_of(replace(pair, target=target), name, **options), wire


def assert_in_step(session: Session, wire: Wire) -> None:
    """The follower's caches hold what rank 0's hold."""
    wire.follow()
    lead = session.decoder.target
    assert isinstance(lead, LeadModel)
    follower = wire.follower._models[lead._number]
    assert follower.length == lead.length
    assert follower.cache.checkpoints == lead.cache.checkpoints
    for one, other in zip(leaves(lead), leaves(follower), strict=True):
        for a, b in zip(live(one), live(other), strict=True):
            assert mx.array_equal(a, b).item()


QUICK = [("llama", 8), ("qwen3_5", 3)]
MANY = [("llama", 100), ("qwen3", 30), ("qwen3_5", 20), ("gemma3_text", 15)]


@pytest.mark.parametrize(
    ("name", "edits"), [*QUICK, *(pytest.param(*it, marks=pytest.mark.slow) for it in MANY)]
)
def test_a_follower_stays_in_step_through_edits(
    pocket: Pair, tmp_path: Path, passed_on: deque[mx.array], name: str, edits: int
) -> None:
    """Replies with every drafter and depth, ended anywhere, after edits anywhere."""
    rng = random.Random(4)
    head = head_of(pocket, name, "mtp", tmp_path)
    plain = session_of(pocket, name, method="off", rule="keyed")
    session, wire = spread_out(pocket, name, head=head, rule="keyed", controller=Dice(3))
    prompt = list(PROMPT)
    for number in range(edits):
        cut = rng.randrange(4, len(prompt))
        prompt = [*prompt[:cut], *(rng.randrange(3, 40) for _ in range(rng.randrange(1, 9)))]
        if number % 10 == 5:
            prompt = (40 * prompt)[:40] * 2  # long enough to be read in parts
        count, sampling = rng.randrange(1, 9), rng.choice([GREEDY, KEYED])
        session.method = "auto"
        reply = session.reply(" ".join(map(str, prompt)), sampling, raw=True, max_tokens=count)
        stays = rng.random() < 0.8
        for event in reply:
            if isinstance(event, Round):
                session.method = rng.choice(["auto", "draft", "mtp", "off", "ngram"])
                session.depth = rng.choice(["auto", 0, 1, 3, 7])
                if not stays and rng.random() < 0.5:
                    reply.close()
        assert session.finished is not None
        said = session.finished.token_ids
        assert said == tokens_of(plain, prompt, sampling, count)[: len(said)]
        assert len(said) == count or not stays
        assert_in_step(session, wire)
    assert {"logits", "rollback", "read"} <= set(wire.told)
    assert session.stats.accepted > 0


def test_costs_are_measured_on_all_ranks(pocket: Pair, passed_on: deque[mx.array]) -> None:
    clock = itertools.count(0.0, 1e-4).__next__
    session, wire = spread_out(pocket, "llama", rule="keyed", clock=clock)
    tokens_of(session, PROMPT, GREEDY, 4)
    wire.told.clear()
    steps = session.measure()
    while session.controller.curve.seconds(len(PROMPT)) is None:
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert {"trees", "logits", "rollback"} <= set(wire.told)
    assert_in_step(session, wire)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({}, "mine is not the same there: it has config.json, too; fetch or copy it again"),
        (None, "mine is not there: copy the folder to the same place"),
    ],
)
def test_a_model_that_a_rank_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: Any, said: str
) -> None:
    def located(name: str, trust_remote_code: bool) -> Path:
        if expected is None:
            raise ModelNotFoundError("the hub does not answer")
        (tmp_path / "config.json").write_text("{}")
        return tmp_path

    monkeypatch.setattr(follower, "locate", located)
    with pytest.raises(ModelNotFoundError, match=said):
        Follower(None, None)._do_open(1, "mine", False, TENSOR, expected)  # type: ignore[arg-type]


def test_conversations_in_turn(pocket: Pair, passed_on: deque[mx.array]) -> None:
    """Each has caches of its own, which go when it goes."""
    plain = session_of(pocket, "llama", method="off", rule="keyed")
    first, wire = spread_out(pocket, "llama", method="ngram", rule="keyed")
    second = Session(first.pair, method="draft", rule="keyed")
    second._prompting = first._prompting
    prompts = (first, PROMPT), (second, PROMPT[5:])
    replies = [
        session.reply(" ".join(map(str, prompt)), KEYED, raw=True, max_tokens=9)
        for session, prompt in prompts
    ]
    while [reply for reply in replies if next(reply, None) is not None]:
        pass
    for session, prompt in prompts:
        assert session.finished is not None
        assert session.finished.token_ids == tokens_of(plain, prompt, KEYED, 9)
        assert_in_step(session, wire)
    assert len(wire.follower._models) == 2
    del second, session, prompts, replies
    gc.collect()
    assert_in_step(first, wire)
    assert len(wire.follower._models) == 1


def test_trees(pocket: Pair, passed_on: deque[mx.array]) -> None:
    session, wire = spread_out(pocket, "llama", method="draft", rule="keyed", controller=Dice(3))
    assert session.decoder.try_trees() is None
    plain = session_of(pocket, "llama", method="off", rule="keyed")
    assert tokens_of(session, PROMPT, KEYED, 24) == tokens_of(plain, PROMPT, KEYED, 24)
    assert_in_step(session, wire)
    assert {"tree", "keep"} <= set(wire.told)
