"""A comparison in sentences: nothing is said of what is not known."""

from __future__ import annotations

from dataclasses import replace

from hostile import harms

from macspec.app.chat.comparison import Comparison, ModeStats, TextDivergence
from macspec.app.lineview import comparison_sentences

FOUND = Comparison(
    rule="greedy",
    plain=ModeStats(3, 40, 20.0, 0.5, 1.0, None, 0.4),
    speculative=ModeStats(3, 40, 31.0, 0.5, 2.5, 0.8, 0.3),
    equal=True,
    finished=True,
)


def test_a_comparison():
    assert list(comparison_sentences(FOUND)) == [
        "Speculative decoding is 1.55 times as fast as plain decoding.",
        "Plain: 20.0 tokens per second, 1.00 tokens per pass, the first token after 0.50 s, "
        "0.4 J per token.",
        "Speculative: 31.0 tokens per second, 2.50 tokens per pass, 80% accepted, the first token "
        "after 0.50 s, 0.3 J per token.",
        "The text is the same (greedy).",
    ]


def test_the_block_rule_never_promises_the_text():
    said = list(comparison_sentences(replace(FOUND, rule="block", equal=None)))
    assert said[-1] == "The block rule guarantees the same distribution, not the same text."
    assert not any("text is the same" in sentence for sentence in said)


def test_a_fork_is_named():
    fork = TextDivergence(17, "so", "a\x1b[31m", "b", 0.0012, near_tie=True)
    said = list(comparison_sentences(replace(FOUND, equal=False, fork=fork)))
    assert (
        "The texts diverge at token 17, where two tokens nearly tie, their scores 0.0012 apart."
        in (said)
    )
    assert not harms("".join(said))


def test_nothing_found():
    assert list(comparison_sentences(Comparison(energy_reason="no counters")))[:3] == [
        "Plain: no reply.",
        "Speculative: no reply.",
        "Energy: not measured; no counters.",
    ]
