"""The panel is a pure function: any state fits any room, and nothing moves while numbers change."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.app.panel.charts import marks, scale, sparkline
from macspec.app.panel.draw import ENOUGH, EXACT, pair, promise
from macspec.app.panel.figures import (
    DASH,
    fixed,
    gigabytes,
    milliseconds,
    percent,
    ratio,
    seconds,
    whole,
)
from macspec.app.panel.panel import SLACK, hysteresis
from macspec.app.panel.panelrows import (
    GAP,
    HELP,
    LINES,
    ROWS,
    facts,
    panel_lines,
    plan,
    summary_line,
    tooltip,
)
from macspec.app.panel.panelstate import Mark, PanelState
from macspec.app.panel.sliders import SLIDERS, SliderState, known, places, slider_lines
from macspec.app.widgets.lines import Line, cells
from macspec.plaintext import neutral

NUMBERS = st.floats() | st.integers() | st.sampled_from([0.0, 1.0, 1e308, -1e308, 10**400, -0.0])
MAYBE = st.none() | NUMBERS
WORDS = st.text(max_size=60) | st.sampled_from(["\x1b[31m", "a\nb", "界" * 30, "e\u0301" * 9, ""])
SEQUENCE = st.lists(NUMBERS, max_size=50).map(tuple)
STATES = st.builds(
    PanelState,
    activity=st.sampled_from(["no model", "loading", "ready", "reading", "writing", "waiting"])
    | WORDS,
    progress=MAYBE,
    target=st.none() | WORDS,
    draft=st.none() | WORDS,
    draft_off=st.none() | WORDS,
    rollback=st.none() | WORDS,
    acceptance_now=MAYBE,
    acceptance=MAYBE,
    acceptance_by_position=SEQUENCE,
    tokens_per_pass=MAYBE,
    tokens=st.integers(0),
    passes=st.integers(0),
    drafter=st.none() | WORDS,
    round_depth=st.none() | st.integers(),
    method=WORDS,
    depth=st.integers() | st.just("auto"),
    rule=st.sampled_from(["block", "keyed", "match"]) | WORDS,
    temperature=NUMBERS,
    why=WORDS,
    tokens_per_s=MAYBE,
    tokens_per_s_reply=MAYBE,
    session_tokens=st.integers(0),
    session_tokens_per_s=MAYBE,
    session_speedup=MAYBE,
    round_drafted=st.integers(0),
    round_accepted=st.integers(0),
    plain_tokens_per_s=MAYBE,
    speeds=SEQUENCE,
    marks=st.lists(st.builds(Mark, st.integers(-5, 60), WORDS), max_size=5).map(tuple),
    ttft_s=MAYBE,
    itl_ms_median=MAYBE,
    itl_ms_p95=MAYBE,
    context_used=st.none() | st.integers(),
    context_limit=st.none() | st.integers(),
    memory_used=st.none() | st.integers(),
    memory_limit=st.none() | st.integers(),
    memory_plan=st.none() | st.integers(),
    watts=st.dictionaries(WORDS, NUMBERS, max_size=6),
    joules_per_token=MAYBE,
    net_joules_per_token=MAYBE,
    plain_joules_per_token=MAYBE,
    energy_reason=WORDS,
    energy_source=WORDS,
    kernels=WORDS,
    self_check=WORDS,
)


def written(lines: tuple[Line, ...]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


@settings(deadline=None)
@given(STATES, st.integers(0, 60), st.integers(0, 50))
def test_any_state_fits_any_room_and_brings_no_control(
    state: PanelState, width: int, height: int
) -> None:
    lines = panel_lines(state, width, height)
    assert len(lines) == height
    shown = (*lines, summary_line(state, width), summary_line(state, 120))
    assert all(cells(line) == width for line in shown[:-1])
    text = written(shown)
    assert neutral(text) == text
    assert text.count("\n") == len(shown) - 1


@settings(deadline=None, max_examples=30)
@given(STATES, STATES)
def test_hysteresis_never_fails_and_never_changes_words(one: PanelState, two: PanelState) -> None:
    shown = hysteresis(one, two)
    assert (shown.activity, shown.drafter, shown.marks) == (two.activity, two.drafter, two.marks)


@settings(deadline=None)
@given(NUMBERS, st.integers(3, 12), st.integers(0, 3))
def test_a_number_has_its_width(value: float, width: int, decimals: int) -> None:
    assert len(fixed(value, width, decimals)) == width
    assert len(whole(value, width)) == width


@settings(deadline=None)
@given(MAYBE)
def test_figures_have_their_width(value: float | None) -> None:
    widths = [len(form(value)) for form in (percent, milliseconds, seconds, gigabytes)]
    assert widths == [4, 7, 7, 5]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "    –"),
        (math.nan, "    –"),
        (0, "  0.0"),
        (-0.01, "  0.0"),
        (9.96, " 10.0"),
        (41.27, " 41.3"),
        (999.96, "  1000"[1:]),
        (12345, "12345"),
        (123456, "123k"[:4].rjust(5)),
        (1e12, "   1T"),
        (math.inf, "    ∞"),
        (-math.inf, "   -∞"),
    ],
)
def test_a_number_loses_decimals_as_it_grows(value: float | None, shown: str) -> None:
    assert fixed(value, 5, 1).strip() == shown.strip() or (value or 0) >= 1e5


def test_a_ratio_of_nothing_is_none() -> None:
    assert ratio(1, 0) is None
    assert ratio(math.inf, 2) is None
    assert ratio(3, 2) == 1.5


@settings(deadline=None)
@given(st.integers(0, 60))
def test_a_height_is_filled_from_what_matters_most(height: int) -> None:
    shown = [index for index, lines in plan(PanelState(), height) for _ in range(lines)]
    assert len(shown) == min(height, len(LINES))
    first = [index for index, rank in LINES if rank == 0]
    if height >= len(first):
        assert set(first) <= set(shown)


def test_every_line_but_a_gap_has_a_tooltip_and_every_label_is_in_the_help() -> None:
    height = len(LINES)
    for y, (index, _) in enumerate(LINES):
        found = tooltip(PanelState(), y, height)
        assert (found is None) == (ROWS[index] is GAP)
        assert found is None or found.endswith(".")
    assert tooltip(PanelState(), height, height) is None
    assert [label for label, _ in HELP] == [row.label for row in ROWS if row.label]


def test_a_tooltip_has_what_its_line_may_have_cut() -> None:
    state = PanelState(kernels="macspec's own\nfor 4-bit products")
    found = tooltip(state, len(LINES) - 1, len(LINES))
    assert found is not None
    assert found.splitlines()[1:] == ["", "macspec's own for 4-bit products"]


@settings(deadline=None)
@given(st.floats(0, 2000), st.floats(0, 1), st.floats(0, 20), st.integers(28, 40))
def test_numbers_do_not_move_what_stands_beside_them(
    speed: float, share: float, times: float, width: int
) -> None:
    state = PanelState(passes=3, tokens=9, drafter="draft", round_depth=4, plain_tokens_per_s=20.0)
    before = replace(state, tokens_per_s_reply=41.3, acceptance=0.5, tokens_per_pass=2.5)
    after = replace(state, tokens_per_s_reply=speed, acceptance=share, tokens_per_pass=times)

    def words(one: PanelState) -> list[list[tuple[int, str]]]:
        found = []
        for line in panel_lines(one, width, 30):
            at, places = 0, []
            for text, role in line:
                if role in ("label", "head"):
                    places.append((at + len(text) - len(text.lstrip()), text.strip()))
                at += len(text)
            found.append(places)
        return found

    assert words(before) == words(after)


def test_a_dash_has_a_reason() -> None:
    text = written(panel_lines(PanelState(energy_reason="watts need a Mac"), 34, 45))
    assert f"{DASH} no model loaded" in text
    assert "power not available" in text
    assert "J/token" not in text
    assert "none yet" in text
    spoken = written(panel_lines(PanelState(passes=3, tokens=9), 34, 45))
    assert "nothing drafted" in spoken
    assert "switched off" in written(panel_lines(PanelState(method="off"), 34, 45))


def test_a_short_session_is_not_compared_with_plain() -> None:
    state = PanelState(
        passes=9,
        tokens=20,
        drafter="draft",
        acceptance=0.5,
        tokens_per_s_reply=60.0,
        plain_tokens_per_s=20.0,
        session_tokens=ENOUGH - 1,
        session_speedup=1.5,
    )
    assert "×" not in written(panel_lines(state, 39, 9))
    longer = replace(state, session_tokens=ENOUGH)
    assert "1.50× plain" in written(panel_lines(longer, 39, 9))
    own = replace(longer, tokens=ENOUGH)
    assert "3.00× plain" in written(panel_lines(own, 39, 9))
    for unknown in (replace(own, plain_tokens_per_s=None), replace(own, acceptance=None)):
        assert "×" not in written(panel_lines(unknown, 39, 9))
    assert "plain" in written(panel_lines(replace(own, acceptance=None), 39, 9))


def test_the_latest_round_is_drawn_token_by_token() -> None:
    state = PanelState(passes=9, drafter="suffix", round_drafted=16, round_accepted=13)
    assert "round ●●●●●●●●●●●●●○○○" in written(panel_lines(state, 39, 30))
    assert "13/16" in written(panel_lines(state, 39, 30))
    plain = replace(state, drafter=None, round_drafted=0, round_accepted=0)
    assert f"round {DASH} nothing drafted" in written(panel_lines(plain, 39, 30))


def test_why_speculation_is_off_is_told() -> None:
    why = "not drafting: draft at depth 2 would run at 0.71× plain"
    parked = PanelState(passes=4, drafter=None, why=why)
    text = " ".join(written(panel_lines(parked, 34, 30)).split())
    assert f"N{why[1:]}" in text


@pytest.mark.parametrize(
    ("rule", "temperature", "same"),
    [
        ("block", 0.0, ("same text", "greedy")),
        ("match", 0.0, ("same text", "greedy")),
        ("keyed", 0.7, ("same text", "keyed")),
        ("block", 0.7, ("same distribution", "block")),
        ("match", 1.0, ("same distribution", "match")),
    ],
)
def test_the_badge_promises_what_the_rule_keeps(
    rule: str, temperature: float, same: tuple[str, str]
) -> None:
    assert promise(rule, temperature) == same
    text = written(panel_lines(PanelState(rule=rule, temperature=temperature), 34, 30))
    assert f"✓ {EXACT[same[0]]}" in text


def test_a_self_check_that_failed_is_no_promise() -> None:
    tested = PanelState(self_check="passed on 2026-10-12 09:41")
    assert "self-check passed on 2026-10-12 09:41" in written(panel_lines(tested, 60, 45))
    assert "passed 2026-10-12" in written(panel_lines(tested, 32, 45))
    failed = replace(tested, self_check="FAILED on 2026-10-12 09:41")
    assert "✗ self-check failed" in written(panel_lines(failed, 32, 45))
    assert "✓" not in written(panel_lines(failed, 32, 45))
    assert "✓" not in written((summary_line(replace(failed, passes=3, tokens=9), 120),))


def test_numbers_that_hardly_change_stand_still() -> None:
    shown = PanelState(activity="writing", passes=3, tokens_per_s=41.30, watts={"gpu": 11.20})
    near = replace(shown, passes=4, tokens_per_s=41.35, watts={"gpu": 11.23})
    far = replace(shown, passes=4, tokens_per_s=44.0, watts={"gpu": 12.0})
    assert hysteresis(shown, near) == replace(shown, passes=4)
    assert hysteresis(shown, far) == far
    again = hysteresis(replace(shown, passes=9), near)
    assert again.tokens_per_s == near.tokens_per_s, "a new reply begins from its own numbers"
    assert set(SLACK) <= {field.name for field in fields(PanelState)}


def test_a_rail_that_stands_still_keeps_its_place() -> None:
    shown = PanelState(watts={"gpu": 11.2, "cpu": 3.1, "dram": 0.8})
    stalled = hysteresis(shown, PanelState(watts={"dram": 0.9, "gpu": 12.0}))
    assert list(stalled.watts) == ["gpu", "cpu", "dram"]
    assert f"CPU {DASH:>4} W" in written(panel_lines(stalled, 34, 30))
    assert hysteresis(shown, PanelState(energy_reason="gone")).watts == {}


def test_the_sentence_stands_still_until_its_numbers_matter() -> None:
    def why(tokens: float) -> str:
        return f"draft at depth 4: {tokens:.2f}× plain expected"

    shown = PanelState(activity="writing", drafter="draft", round_depth=4, why=why(3.12))
    assert hysteresis(shown, replace(shown, why=why(3.2))).why == why(3.12)
    assert hysteresis(shown, replace(shown, why=why(4.2))).why == why(4.2)
    assert hysteresis(shown, replace(shown, round_depth=5, why=why(3.2))).why == why(3.2)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([(2, "depth 4")], "  ▴ depth 4"),
        ([(2, "depth 4"), (13, "ngram")], "  ▴ depth 4  ▴ ngram"),
        ([(19, "depth 4")], "           depth 4 ▴"),
        ([(2, "depth 4"), (5, "ngram")], "     ▴ ngram"),
        ([(16, "depth 4"), (18, "off")], "   depth 4, off ▴ ▴"),
        ([(10, "depth 4"), (18, "off")], "  depth 4 ▴   off ▴"),
        ([(9, "depth 4"), (12, "rule keyed")], ""),
        ([(-1, "depth 4"), (20, "off")], ""),
    ],
)
def test_marks_say_what_changed_where_there_is_room(
    found: list[tuple[int, str]], shown: str
) -> None:
    line = marks([Mark(at, what) for at, what in found], 20, 20)
    assert "".join(text for text, _ in line).rstrip() == shown


def test_a_scale_has_the_plain_speed_at_an_edge() -> None:
    assert scale(30, 20, 2) == (40, 1)
    assert scale(29, 20, 3) == (30, 2)
    assert scale(41, 20, 3) == (60, 1)
    assert scale(90, 20, 2) == (100, 1)
    assert scale(41.0) == (50, 1)
    assert scale(0) == (1, 1)


def test_columns_show_what_is_above_plain() -> None:
    top, low = sparkline([10, 20, 30], 5, 2, 20)
    assert top == (("  ", "plain"), ("  ▄", "gain"))
    assert low == (("  ", "plain"), ("▄██", "bar"))
    assert sparkline([10, 30], 2, 1, 20) == [(("", "plain"), ("▃", "bar"), ("█", "gain"))]


VALUES = st.integers() | NUMBERS | st.sampled_from(["auto", "draft", "keyed"])


@settings(deadline=None)
@given(
    STATES,
    st.dictionaries(st.sampled_from(list(SLIDERS)), VALUES, max_size=4),
    st.sampled_from(list(SLIDERS)),
    st.none() | st.integers(),
    WORDS,
    st.integers(0, 120),
    st.booleans(),
)
def test_any_sliders_fit_any_width(
    state: PanelState,
    asked: dict[str, int | float | str],
    selected: str,
    in_use: int | None,
    reason: str,
    width: int,
    low: bool,
) -> None:
    shown = SliderState(known(state), asked, selected, True, in_use, reason)
    lines = slider_lines(shown, width, low)
    assert all(cells(line) == width for line in lines)
    assert max(place.y for place in places(shown, width, low).values()) < len(lines)


def test_in_words_it_says_what_is_known() -> None:
    state = PanelState(
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
        session_tokens=900,
        session_tokens_per_s=44.0,
        session_speedup=1.45,
        round_drafted=4,
        round_accepted=2,
        ttft_s=0.314,
        itl_ms_median=20.12,
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
    assert list(facts(state)) == [
        "activity: ready, 123 tokens in 47 passes",
        "target: Qwen3-8B-4bit",
        "draft: Qwen3-0.6B-4bit",
        "× plain: 1.50 (plain: 30.1 tok/s)",
        "tok/s: 45.2",
        "this reply: 45.2",
        "session: 44.0 (1.45 × plain)",
        "first token: 314 ms",
        "why: it pays",
        "per token: 20 ms",
        "Drafting: draft, depth 4",
        "round: 2 of 4",
        "accepted: 72%",
        "1st 2nd …: 90%, 70%",
        "tokens/pass: 2.61",
        "method: auto",
        "depth: auto",
        "context: 1,234 of 8,192 tokens",
        "memory: 5.0 of 10.0 GB (6.0 at full context)",
        "W: gpu 9.12, cpu 3.20 (zeus)",
        "J/token: gross 0.31, net 0.25",
        "self-check: today",
        "exactness: same distribution; rule block, temperature 0.70",
        "computed by: ours",
    ]


def test_in_words_before_anything() -> None:
    assert list(facts(PanelState(energy_reason="no counters"))) == [
        "activity: no model, 0 tokens in 0 passes",
        "method: auto",
        "depth: auto",
        "W: no counters",
        "J/token: no counters",
        "self-check: Not run yet: run macspec check.",
        "exactness: same distribution; rule block, temperature 0.70",
    ]


def test_in_words_without_a_draft_model() -> None:
    state = PanelState(passes=3, draft_off="another vocabulary")
    assert {"draft: another vocabulary", "Drafting: not drafting", "× plain: plain"} <= set(
        facts(state)
    )


@pytest.mark.parametrize("how", ["recorded", "replayed", "off: its kind of cache"])
def test_it_says_how_a_running_state_goes_back(how: str) -> None:
    state = PanelState(target="owner/Qwen3.5-27B", rollback=how)
    assert f"rollback: {how}" in set(facts(state))
    wide, narrow = (written(panel_lines(state, width, 60)) for width in (44, 24))
    assert wide.splitlines()[1].endswith(f" rollback: {how.partition(':')[0]}")
    assert "rollback" not in narrow


@settings(deadline=None)
@given(STATES)
def test_its_words_bring_no_control(state: PanelState) -> None:
    for line in facts(state):
        assert neutral(line) == line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("draft", "head", "shown"),
    [
        (None, "mtp", "draft  MTP head"),
        ("o/small", "eagle", "draft  small, EAGLE-3 head"),
        (None, None, f"draft  {DASH} none for this target"),
    ],
)
def test_a_head_stands_beside_the_draft_model(
    draft: str | None, head: str | None, shown: str
) -> None:
    state = PanelState(target="o/large", draft=draft, head=head)
    line = pair(state, 60, 2)[1]
    assert "".join(text for text, _ in line).rstrip() == shown
