"""The screen of a comparison."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from comparisons import BLOCK, NEAR_TIE, RUNNING, SAME
from hypothesis import given, settings
from hypothesis import strategies as st
from screentext import Host, seen, until

from macspec.app.chat.comparison import Comparison, ModeStats, TextDivergence
from macspec.app.screens.compare import CompareScreen, comparison_lines
from macspec.app.themes import OWN
from macspec.app.widgets.lines import cells
from macspec.errors import MacspecError
from macspec.plaintext import neutral

NUMBERS = st.none() | st.floats() | st.integers()
WORDS = st.text(max_size=80) | st.sampled_from(["\x1b]0;title\x07", "界" * 50, "a\tb\nc"])
WAYS = st.builds(ModeStats, st.integers(0, 9), *[NUMBERS] * 6)
COMPARISONS = st.builds(
    Comparison,
    prompt=WORDS,
    rule=st.sampled_from(["greedy", "keyed", "block", "match"]),
    drafting=WORDS,
    planned=st.integers(0, 20),
    doing=st.sampled_from(["", "plain", "speculative"]),
    progress=NUMBERS,
    plain=WAYS,
    speculative=WAYS,
    equal=st.none() | st.booleans(),
    fork=st.none()
    | st.builds(
        TextDivergence, st.integers(0), WORDS, WORDS, WORDS, st.none() | st.floats(), st.booleans()
    ),
    energy_reason=WORDS,
    notes=st.lists(WORDS, max_size=3).map(tuple),
    finished=st.booleans(),
)


async def run(*found: Comparison, stay: bool = False, error: str = "") -> AsyncIterator[Comparison]:
    for one in found:
        yield one
    if error:
        raise MacspecError(error)
    if stay:
        await asyncio.Event().wait()


def text(found: Comparison, width: int = 80) -> str:
    return "\n".join("".join(part for part, _ in line) for line in comparison_lines(found, width))


@settings(deadline=None)
@given(COMPARISONS, st.integers(1, 110))
def test_any_comparison_fits_any_width(found: Comparison, width: int) -> None:
    assert all(cells(line) == width for line in comparison_lines(found, width))
    assert neutral(text(found, width)) == text(found, width)


def test_only_a_rule_that_promises_the_text_is_held_to_it() -> None:
    for rule in ("block", "match"):
        for equal in (None, True, False):
            shown = text(replace(BLOCK, rule=rule, equal=equal))
            assert "same distribution" in shown
            assert "same text" not in shown
    assert "✓ same text" in text(SAME)
    assert "✓ same text" in text(replace(SAME, rule="keyed"))
    assert "one seed" in text(replace(SAME, rule="keyed"))


def test_a_fork_is_shown_at_its_token_with_both_ways_on() -> None:
    shown = text(NEAR_TIE)
    assert "Divergence at token 57" in shown
    assert "near-tie at token 57" in shown
    assert "raindrop" in shown
    assert "drop of rain" in shown
    assert NEAR_TIE.fork is not None
    real = replace(NEAR_TIE, fork=replace(NEAR_TIE.fork, near_tie=False))
    assert "✗ the texts differ from token 57 on" in text(real)
    assert "✓" not in text(real)
    ended = replace(NEAR_TIE, fork=replace(NEAR_TIE.fork, speculative=""))
    assert "(ends here)" in text(ended)


def test_nothing_is_promised_before_it_is_known() -> None:
    assert "✓" not in text(RUNNING)
    assert "3/6" in text(RUNNING)


async def test_esc_ends_the_run_and_then_the_screen() -> None:
    app = Host()
    async with app.run_test(size=(100, 40)) as pilot:
        await app.ask(CompareScreen(run(RUNNING, stay=True)))
        await until(pilot, lambda: "3/6" in seen(app))
        assert "Esc stop" in seen(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Esc close" in seen(app))
        assert "22.7" in seen(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.results == [None])


async def test_an_error_is_told_and_what_was_found_stays() -> None:
    app = Host()
    async with app.run_test(size=(100, 40)) as pilot:
        await app.ask(CompareScreen(run(RUNNING, error="the engine is gone: ask again")))
        await until(pilot, lambda: "the engine is gone: ask again" in seen(app))
        assert "22.7" in seen(app)


async def test_a_low_screen_scrolls() -> None:
    app = Host()
    async with app.run_test(size=(40, 12)) as pilot:
        await app.ask(CompareScreen(run(NEAR_TIE)))
        await until(pilot, lambda: "1.82×" in seen(app))
        assert "J/token" not in seen(app)
        await pilot.press(*["down"] * 30)
        await until(pilot, lambda: "J/token" in seen(app))


async def test_a_run_that_is_closed_has_ended() -> None:
    ended: list[bool] = []

    async def noticed() -> AsyncIterator[Comparison]:
        try:
            yield RUNNING
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    app = Host()
    async with app.run_test(size=(100, 40)) as pilot:
        await app.ask(CompareScreen(noticed()))
        await until(pilot, lambda: "3/6" in seen(app))
        await pilot.press("escape")
        await until(pilot, lambda: ended)


@pytest.mark.parametrize("found", [SAME, NEAR_TIE], ids=["same", "near-tie"])
def test_picture(
    snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, found: Comparison
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = Host()
    for own in OWN:
        app.register_theme(own)
    app.theme = "macspec-dark"

    async def begin(pilot: Any) -> None:
        await app.ask(CompareScreen(run(found)))
        await until(pilot, lambda: "Esc close" in seen(app))

    assert snap_compare(app, terminal_size=(96, 34), run_before=begin)
