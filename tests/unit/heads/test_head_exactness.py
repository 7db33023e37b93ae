"""Replies drafted by heads are those of plain decoding, however badly the head drafts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from headfiles import head_of
from replies import assert_like_fresh
from test_decoding import GREEDY, KEYED, PROMPT, session_of, tokens_of
from tinymodels import VOCABULARY

from macspec import Notice
from macspec.drafters import ChainDrafter, HeadModel
from macspec.models import Pair

TARGETS = ("llama", "qwen3_5", "gemma3_text")
COUNT = 40


def cases(depths: list[int]) -> list[tuple[str, str, int]]:
    return [(name, kind, it) for name in TARGETS for kind in ("mtp", "eagle") for it in depths]


SLOW = [pytest.param(*it, marks=pytest.mark.slow) for it in cases([2, 3, 4, 5, 6, 7, 8])]


@pytest.mark.parametrize(("name", "kind", "depth"), [*cases([1, 5]), *SLOW])
def test_replies_are_those_of_plain_decoding(
    pocket: Pair, tmp_path: Path, name: str, kind: str, depth: int
) -> None:
    plain = session_of(pocket, name, method="off", rule="keyed")
    head = head_of(pocket, name, kind, tmp_path)
    session = session_of(pocket, name, head=head, method=kind, depth=depth, rule="keyed")
    for sampling in (GREEDY, KEYED):
        expected = tokens_of(plain, PROMPT, sampling, COUNT)
        assert tokens_of(session, PROMPT, sampling, COUNT) == expected
        assert_like_fresh(session)
    assert session.stats.drafted > COUNT


@pytest.mark.parametrize(("name", "kind"), [("llama", "eagle"), ("qwen3_5", "mtp")])
def test_a_head_stays_in_step_through_edits_and_switches(
    pocket: Pair, tmp_path: Path, name: str, kind: str
) -> None:
    """After any history its proposals are those of a head that read the same text at once."""
    rng = random.Random(2)
    head = head_of(pocket, name, kind, tmp_path)
    session = session_of(pocket, name, head=head, rule="keyed", depth=3)
    plain = session_of(pocket, name, method="off", rule="keyed")
    for _ in range(8):
        prompt = PROMPT[: rng.randrange(8, len(PROMPT))]
        expected = tokens_of(plain, prompt, KEYED, 24)
        reply = session.reply(" ".join(map(str, prompt)), KEYED, raw=True, max_tokens=24)
        for _ in reply:
            session.method = rng.choice(["auto", "draft", kind, kind, "off", "ngram"])
            if rng.random() < 0.03:
                reply.close()
                break
        else:
            assert session.finished is not None
            assert session.finished.token_ids == expected
    session.method = kind
    drafter = session.decoder.portfolio.drafters[kind]
    assert isinstance(drafter, ChainDrafter)
    assert isinstance(drafter.stepper, HeadModel)
    assert drafter.stepper.length <= len(session.decoder.tokens)


def test_a_head_that_never_agrees_says_so(pocket: Pair, tmp_path: Path) -> None:
    head = head_of(pocket, "llama", "mtp", tmp_path)
    session = session_of(pocket, "llama", head=head, method="mtp", depth=2)
    prompt = " ".join(map(str, [(11 * i * i + 5 * i) % VOCABULARY for i in range(50)]))
    events = session.reply(prompt, GREEDY, raw=True, max_tokens=9)
    told = [it.message for it in events if isinstance(it, Notice)]
    assert sum("the head drafts badly: it agrees with the target on" in it for it in told) == 1
