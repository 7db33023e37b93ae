"""A comparison in sentences: nothing is said of what is not known."""

from __future__ import annotations

from dataclasses import replace

from hostile import harms

from macspec.app.chat.comparison import Comparison, ModeStats, TextDivergence
from macspec.app.screens.compare import sentences

FOUND = Comparison(
    rule="greedy",
    plain=ModeStats(3, 40, 20.0, 0.5, 1.0, None, 0.4),
    speculative=ModeStats(3, 40, 31.0, 0.5, 2.5, 0.8, 0.3),
    equal=True,
    finished=True,
)


def test_a_comparison():
    assert list(sentences(FOUND)) == [
        "Speculative decoding is 1.55 times as fast as plain decoding.",
        "tok/s: plain 20.0, speculative 31.0",
        "tokens: plain 40, speculative 40",
        "first token: plain 500 ms, speculative 500 ms",
        "tokens/pass: plain 1.00, speculative 2.50",
        "accepted: speculative 80%",
        "J/token: plain 0.40, speculative 0.30",
        "same text; all 40 tokens are the same",
    ]


def test_the_block_rule_never_promises_the_text():
    said = list(sentences(replace(FOUND, rule="block", equal=None)))
    assert said[-1] == ("same distribution; the block rule samples anew: each text is one of many")
    assert not any("same text" in sentence for sentence in said)


def test_a_fork_is_named():
    fork = TextDivergence(17, "so", "a\x1b[31m", "b", 0.0012, near_tie=True)
    said = list(sentences(replace(FOUND, equal=False, fork=fork)))
    assert any(it.startswith("same text up to a near-tie at token 18; ") for it in said)
    assert "Divergence at token 18, 0.0012 apart in score" in said
    assert not harms("".join(said))


def test_nothing_found():
    assert list(sentences(Comparison(energy_reason="no counters"))) == [
        "J/token: not measured; no counters",
        "no texts to compare yet",
    ]
