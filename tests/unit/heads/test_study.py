"""What a drafter learns, when idle, from tokens that were committed without it."""

from __future__ import annotations

import pytest
from replies import finish

from macspec import Sampling, Session, load_pair
from macspec.control import PLAIN, Controller
from macspec.models import Pair

PROMPTS = (
    "I would like to book a table for two, please.",
    "What do you like to do at the weekend?",
    "I need a flight to Boston on Monday.",
    "Can you find me a film to watch tonight?",
    "How is the weather in Paris?",
    "Tell me about a good book.",
)


@pytest.fixture(scope="module")
def pair() -> Pair:
    """The built-in target and its head."""
    return load_pair()


def judged_by(
    session: Session, temperature: float, studies: bool, prompts: tuple[str, ...] = PROMPTS
) -> tuple[int, int]:
    """How many tokens of the head were accepted and judged, in the replies or after each."""
    seen: list[tuple[int, int]] = []
    estimate = session.decoder.controller.acceptance
    learn = estimate.observe

    def noted(drafter: str, bucket: int, drafted: int, accepted: int) -> None:
        if drafter == "eagle":
            seen.append((accepted, min(accepted + 1, drafted)))
        learn(drafter, bucket, drafted, accepted)

    estimate.observe = noted  # type: ignore[method-assign]
    for seed, prompt in enumerate(prompts):
        finish(session, prompt, Sampling(temperature=temperature, seed=seed), max_tokens=32)
        if studies:
            list(session.measure(longest=0.0))
    accepted, judged = (sum(it[at] for it in seen) for at in range(2))
    return accepted, judged


@pytest.mark.parametrize(
    ("rule", "temperature"),
    [("keyed", 0.0), ("keyed", 1.0), pytest.param("match", 1.0, marks=pytest.mark.slow)],
)
def test_the_head_learns_from_plain_replies_how_it_would_have_fared(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, rule: str, temperature: float
) -> None:
    """Short replies too, and what it learns is neither better nor worse than what happens."""
    drafting = Session(pair, method="eagle", depth=8, rule=rule)
    accepted, judged = judged_by(drafting, temperature, studies=False)
    plain = Session(pair, rule=rule)
    monkeypatch.setattr(Controller, "choose", lambda *_, **__: PLAIN)
    learned, studied = judged_by(plain, temperature, studies=True)
    assert studied > 0.7 * judged
    assert learned / studied == pytest.approx(accepted / judged, abs=0.07)


@pytest.mark.slow
def test_the_head_learns_so_under_the_block_rule(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts differ under this rule, so that more of them are needed for a comparison."""
    drafting = Session(pair, method="eagle", depth=8, rule="block")
    accepted, judged = judged_by(drafting, 1.0, studies=False, prompts=PROMPTS * 4)
    plain = Session(pair, rule="block")
    monkeypatch.setattr(Controller, "choose", lambda *_, **__: PLAIN)
    learned, studied = judged_by(plain, 1.0, studies=True, prompts=PROMPTS * 4)
    assert learned / studied == pytest.approx(accepted / judged, abs=0.07)
