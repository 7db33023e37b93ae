"""Comparisons, as a session meets them."""

from __future__ import annotations

from dataclasses import replace

from macspec.app.chat.comparison import Comparison, ModeStats, TextDivergence

RUNNING = Comparison(
    prompt="Explain to a child who likes physics how a rainbow forms.",
    rule="greedy",
    drafting="draft, depth 4",
    planned=6,
    doing="speculative",
    progress=0.4,
    plain=ModeStats(2, 182, 22.7, 0.214, 1.0, None, 0.66),
    speculative=ModeStats(1, 182, 41.3, 0.231, 3.12, 0.74, 0.41),
)

SAME = replace(
    RUNNING,
    doing="",
    progress=None,
    plain=replace(RUNNING.plain, replies=3),
    speculative=replace(RUNNING.speculative, replies=3),
    equal=True,
    finished=True,
)

NEAR_TIE = replace(
    SAME,
    equal=False,
    fork=TextDivergence(
        token=56,
        before="Light from the sun looks white, but it is of many colours.\n\nWhen it meets a ",
        plain="raindrop it slows down and bends, and each colour bends by another amount, so that",
        speculative="drop of rain it slows down and bends, and since blue bends more than red",
        gap=0.00031,
        near_tie=True,
    ),
)

BLOCK = replace(
    SAME,
    rule="block",
    equal=None,
    plain=replace(SAME.plain, joules_per_token=None),
    speculative=replace(SAME.speculative, joules_per_token=None),
    energy_reason="the energy counters of this machine are for root only",
)
