"""Numbers in sentences: each says one thing, and nothing is said of what is not known."""

from __future__ import annotations

from dataclasses import replace

from hostile import TEXTS, harms

from macspec.app.chat.comparison import Comparison, ModeStats, TextDivergence
from macspec.app.panel.panelstate import PanelState
from macspec.app.sentences import comparison_sentences, sentences

FULL = PanelState(
    activity="ready",
    target="Qwen3-8B-4bit",
    draft="Qwen3-0.6B-4bit",
    acceptance=0.72,
    acceptance_by_position=(0.9, 0.7),
    tokens_per_pass=2.613,
    tokens=123,
    passes=47,
    drafter="draft",
    round_depth=4,
    why="it pays",
    tokens_per_s_reply=45.23,
    plain_tokens_per_s=30.1,
    ttft_s=0.314,
    itl_ms_median=20.12,
    itl_ms_p95=38.26,
    context_used=1234,
    context_limit=8192,
    memory_used=5 * 2**30,
    memory_limit=10 * 2**30,
    memory_plan=6 * 2**30,
    watts={"gpu": 9.12, "cpu": 3.2},
    joules_per_token=0.31,
    net_joules_per_token=0.25,
    energy_source="zeus",
    kernels="ours",
    self_check="today",
)


def test_all_of_it():
    assert list(sentences(FULL)) == [
        "Reply: 123 tokens in 47 passes, 45.2 tokens per second (plain decoding: about 30.1).",
        "Times: the first token after 0.31 s, 20.1 ms between tokens, 38.3 ms at the 95th "
        "percentile.",
        "Pair: Qwen3-8B-4bit with Qwen3-0.6B-4bit.",
        "Speculation: 72% of the drafted tokens accepted, by position 90%, 70%, 2.61 tokens per "
        "pass.",
        "Set: depth auto, method auto, rule block, temperature 0.7.",
        "Last round: drafter draft, depth 4.",
        "Why: it pays.",
        "Context: 1234 of 8192 tokens.",
        "Memory: 5.00 of 10.0 GB; planned 6.00 GB.",
        "Power (zeus): gpu 9.1 W, cpu 3.2 W.",
        "Energy: 0.31 J per token gross, 0.25 J per token net of idle.",
        "Kernels: ours.",
        "Self-test: today.",
    ]


def test_before_anything():
    assert list(sentences(PanelState(energy_reason="no counters"))) == [
        "No reply in this session yet.",
        "Set: depth auto, method auto, rule block, temperature 0.7.",
        "Power: not measured; no counters.",
        "Self-test: not run yet (macspec check).",
    ]


def test_why_there_is_no_draft_and_a_plain_round():
    said = list(
        sentences(replace(FULL, drafter=None, round_depth=0, draft_off="another vocabulary"))
    )
    assert "No draft model: another vocabulary." in said
    assert "Last round: no drafter, depth 0." in said


def test_names_are_neutral():
    for name, text in TEXTS.items():
        state = replace(FULL, target=text, draft=text, why=text, drafter=text, kernels=text)
        for sentence in sentences(replace(state, draft_off=text, energy_source=text)):
            assert not harms(sentence), name
            assert "\n" not in sentence


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
