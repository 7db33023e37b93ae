"""Replies drafted by heads are those of plain decoding, however badly the head drafts."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from assistantfiles import drafting
from headfiles import head_of, target_of, written
from mtpfiles import PACKAGINGS, Made
from replies import assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, session_of, tokens_of
from test_exactness import Dice
from test_hybrids import walk
from tinymodels import VOCABULARY

from macspec import Notice, Round, Session
from macspec.drafters import Context
from macspec.drafters.head import HeadModel
from macspec.heads import open_head, own_head
from macspec.models import Pair

TARGETS = ("llama", "qwen3_5", "gemma3_text")
COUNT = 24


PAIRS = [
    *product(TARGETS, ("mtp", "reduced", "eagle")),
    ("gemma4_text", "assistant"),
]
QUICK = [
    ("llama", "mtp", 5),
    ("qwen3_5", "eagle", 3),
    ("gemma4_text", "assistant", 7),
    ("llama", "reduced", 2),
]
SLOW = [
    pytest.param(*pair, depth, marks=pytest.mark.slow)
    for pair, depth in product(PAIRS, range(1, 9))
    if (*pair, depth) not in QUICK
]
SLOW += [pytest.param("llama", "first", depth, marks=pytest.mark.slow) for depth in (2, 7)]


def proposed(session: Session, tokens: list[int]) -> list[int]:
    """What a session's head drafts after a text."""
    target, drafter = session.decoder.target, session.decoder.portfolio.models(session.method)[0]
    while target.length < len(tokens) - 1:
        target.read_next(tokens)
    proposal = drafter.propose(Context(tokens, GREEDY, None, False, mx.async_eval), 3)
    assert proposal is not None
    drafted: Any = proposal.tokens.tolist()
    return list(drafted)


def test_the_device_starts_before_a_heads_first_step_is_built(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = drafting(pocket, "llama", "eagle", tmp_path)
    session = session_of(pocket, "llama", head=head, method="eagle", depth=2)
    tokens_of(session, PROMPT, GREEDY, 4)
    (drafter,) = session.decoder.portfolio.models("eagle")
    assert isinstance(drafter.stepper, HeadModel)
    begun: list[mx.array] = []
    built: list[int] = []
    layer = type(drafter.stepper.head.layers[0].mlp)
    original = layer.__call__

    def counting(self: Any, x: mx.array) -> mx.array:
        built.append(len(begun))
        return original(self, x)

    monkeypatch.setattr(layer, "__call__", counting)
    text = session.decoder.tokens
    session.decoder.rollback(len(text) - 1)
    drafter.propose(Context(text, GREEDY, None, False, dispatch=begun.append), 2)
    # Of a later step only the token is started: it is behind the first one.
    assert built == [1, 2]


WAYS = [(GREEDY, "block"), (KEYED, "keyed"), (KEYED, "match")]
"""Samplings under which the rule repeats what plain decoding writes."""


@pytest.mark.parametrize(("name", "kind", "depth"), [*QUICK, *SLOW])
def test_replies_are_those_of_plain_decoding(
    pocket: Pair, tmp_path: Path, name: str, kind: str, depth: int
) -> None:
    plain = session_of(pocket, name, method="off", rule="keyed")
    head = drafting(pocket, name, kind, tmp_path)
    session = session_of(pocket, name, head=head, method=head.kind, depth=depth)
    for sampling, session.rule in WAYS if depth % 2 else WAYS[:2]:
        expected = tokens_of(plain, PROMPT, sampling, COUNT)
        assert tokens_of(session, PROMPT, sampling, COUNT) == expected
        assert_like_fresh(session)
    assert session.stats.drafted > COUNT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("llama", "eagle"), ("qwen3_5", "mtp"), ("gemma4_text", "assistant")]
)
def test_200_tokens_are_those_of_plain_decoding(
    pocket: Pair, tmp_path: Path, name: str, kind: str
) -> None:
    plain = session_of(pocket, name, method="off", rule="keyed")
    head = drafting(pocket, name, kind, tmp_path)
    session = session_of(pocket, name, head=head, method=head.kind, depth=4, rule="keyed")
    for sampling in (GREEDY, KEYED):
        expected = tokens_of(plain, PROMPT, sampling, 200)
        assert tokens_of(session, PROMPT, sampling, 200) == expected


@pytest.mark.parametrize("depth", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_head_for_each_depth(
    pocket: Pair, tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Depths beyond the last are not asked for, and one that was left out catches up."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    written(tmp_path, Made(PACKAGINGS["glm4_moe"]).tensors, {})
    files = own_head("a target", tmp_path, 2)
    assert files is not None
    head = open_head(files, target_of(pocket, "glm4_moe"))
    plain = session_of(pocket, "glm4_moe", method="off", rule="keyed")
    session = session_of(pocket, "glm4_moe", head=head, method="mtp", depth=depth, rule="keyed")
    expected = tokens_of(plain, PROMPT, KEYED, COUNT)
    text = " ".join(map(str, PROMPT))
    for number, event in enumerate(session.reply(text, KEYED, raw=True, max_tokens=COUNT)):
        if isinstance(event, Round):
            assert event.drafted <= 3
        session.depth = (depth, 1, 2)[number // 5 % 3]
    assert session.finished is not None
    assert session.finished.token_ids == expected
    fresh = session_of(pocket, "glm4_moe", head=head, method="mtp", rule="keyed")
    assert proposed(session, session.decoder.tokens) == proposed(fresh, session.decoder.tokens)


@pytest.mark.parametrize("kind", ["mtp", pytest.param("eagle", marks=pytest.mark.slow)])
def test_trees_of_a_head(pocket: Pair, tmp_path: Path, kind: str) -> None:
    plain = session_of(pocket, "llama", method="off", rule="keyed")
    head = head_of(pocket, "llama", kind, tmp_path)
    session = session_of(pocket, "llama", head=head, method=kind, rule="keyed", controller=Dice(3))
    assert session.decoder.try_trees() is None
    for sampling in (GREEDY, KEYED):
        reply = session.reply(" ".join(map(str, PROMPT)), sampling, raw=True, max_tokens=32)
        assert sum(isinstance(it, Round) and it.branched for it in reply) > 3
        assert session.finished is not None
        assert session.finished.token_ids == tokens_of(plain, PROMPT, sampling, 32)
        assert_like_fresh(session)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "eagle"),
        ("llama", "sliding"),
        ("qwen3_5", "mtp"),
        ("gemma4_text", "assistant"),
    ],
)
def test_a_random_walk_leaves_the_head_in_step(
    pocket: Pair, tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits, replies closed in mid-round, checkpoints and texts longer than any window."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    monkeypatch.setattr("macspec.drafters.assistant.LEAST", 1000)
    head = drafting(pocket, name, kind, tmp_path)
    session = walk(pocket, name, 40, monkeypatch, head=head)
    tokens_of(session, PROMPT, GREEDY, 8)
    session.method = head.kind
    fresh = session_of(pocket, name, head=head, method=head.kind)
    assert proposed(session, session.decoder.tokens) == proposed(fresh, session.decoder.tokens)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("llama", "eagle", marks=pytest.mark.slow),
        ("llama", "sliding"),
        ("qwen3_5", "mtp"),
        ("gemma4_text", "assistant"),
    ],
)
def test_a_head_stays_in_step_through_edits_and_switches(
    pocket: Pair, tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any history its proposals are those of a head that read the same text at once."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 1000)
    monkeypatch.setattr("macspec.drafters.assistant.LEAST", 1000)
    rng = random.Random(2)
    head = drafting(pocket, name, kind, tmp_path)
    method = head.kind
    session = session_of(pocket, name, head=head, rule="keyed", depth=3)
    plain = session_of(pocket, name, method="off", rule="keyed")
    for _ in range(4):
        prompt = PROMPT[: rng.randrange(8, len(PROMPT))]
        expected = tokens_of(plain, prompt, KEYED, 24)
        reply = session.reply(" ".join(map(str, prompt)), KEYED, raw=True, max_tokens=24)
        for _ in reply:
            session.method = rng.choice(["auto", "draft", method, method, "off", "ngram"])
            if rng.random() < 0.03:
                reply.close()
                break
        else:
            assert session.finished is not None
            assert session.finished.token_ids == expected
    session.method = method
    fresh = session_of(pocket, name, head=head, method=method)
    assert proposed(session, session.decoder.tokens) == proposed(fresh, session.decoder.tokens)


def test_a_regenerated_reply_leaves_no_gap_in_what_a_head_read(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the target's row before the first new token was let go of."""
    monkeypatch.setattr("macspec.drafters.head.LEAST", 9)
    head = drafting(pocket, "llama", "mtp", tmp_path)
    session = session_of(pocket, "llama", head=head, method="mtp", depth=3)
    plain = tokens_of(session_of(pocket, "llama", method="off"), PROMPT, GREEDY, 24)
    for _ in range(3):
        assert tokens_of(session, PROMPT, GREEDY, 24) == plain
    (depth,) = session.decoder.portfolio.models("mtp")[0].stepper._depths  # type: ignore[attr-defined]
    assert [it.start for it in depth._ranges] == [0]


@pytest.mark.parametrize(("name", "kind"), [("llama", "mtp"), ("gemma4_text", "assistant")])
def test_a_head_that_never_agrees_says_so(
    pocket: Pair, tmp_path: Path, name: str, kind: str
) -> None:
    head = drafting(pocket, name, kind, tmp_path)
    session = session_of(pocket, name, head=head, method="mtp", depth=2)
    prompt = " ".join(map(str, [(11 * i * i + 5 * i) % VOCABULARY for i in range(50)]))
    events = session.reply(prompt, GREEDY, raw=True, max_tokens=9)
    told = [it.message for it in events if isinstance(it, Notice)]
    assert sum("the head drafts badly: it agrees with the target on" in it for it in told) == 1
