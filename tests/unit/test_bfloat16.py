"""In the precision that people run, a fork is allowed only where two tokens nearly tie."""

from __future__ import annotations

import pytest
from replies import finish, prompt_tokens

from macspec import Sampling, Session, load_pair
from macspec.assets import prompts
from macspec.divergence import first_difference
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.noise import TARGET, Noise

EPSILON = 0.25
"""Largest float32 gap between two scores that bfloat16 may confuse: four steps of a logit of 16."""

MOST_FORKS = 0.05
"""Largest share of replies that may fork at all."""

CHATS = prompts()[:40]
DRAWS = (Sampling(temperature=0), Sampling(temperature=0.7, seed=4))


def gap(pair: Pair, prompt: list[int], sampling: Sampling, one: int, other: int) -> float:
    """Distance in float32 of the scores that two tokens have after ``prompt``."""
    target = CachedModel(pair.target.module, pair.vocabulary)
    logits = target.logits(target.unread(prompt), 1)
    scores = sampling.scores(logits)
    if not sampling.greedy:
        assert sampling.seed is not None
        scores = scores + Noise(sampling.seed, 0, len(prompt), 1, pair.vocabulary).gumbel(TARGET)
    return abs(scores[0, one].item() - scores[0, other].item())


def forks(exact: Pair, chats: list[list[dict[str, str]]], depths: tuple[int, ...]) -> list[float]:
    """The gap at the first difference of every reply that forks."""
    pair = load_pair(draft="built-in")
    found = []
    for chat in chats:
        for sampling in DRAWS:
            plain = finish(Session(pair, method="off"), chat, sampling, max_tokens=32).token_ids
            for depth in depths:
                session = Session(pair, method="draft", depth=depth, rule="keyed")
                ids = finish(session, chat, sampling, max_tokens=32).token_ids
                at = first_difference(plain, ids)
                if at is not None:
                    prompt = [*prompt_tokens(pair, chat), *plain[:at]]
                    found.append(gap(exact, prompt, sampling, plain[at], ids[at]))
    return found


def judge(found: list[float], replies: int) -> None:
    print(f"\n{len(found)} of {replies} replies fork; gaps {[round(g, 4) for g in found]}")
    assert all(g <= EPSILON for g in found)
    assert len(found) <= MOST_FORKS * replies


def test_forks_are_near_ties(pocket: Pair) -> None:
    judge(forks(pocket, CHATS[::20], (1, 4)), 8)


@pytest.mark.long
@pytest.mark.slow
def test_forks_are_near_ties_everywhere(pocket: Pair) -> None:
    judge(forks(pocket, CHATS[::7], (1, 3, 5, 8)), 48)
