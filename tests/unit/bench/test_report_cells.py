"""Cells, tables and pages, from scripted samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_arms import Clock, ScriptedArm, costs_of, questions

from macspec.bench.cells import ALL, FORCED, Cell, Ratio, cells
from macspec.bench.costs import Costs, limits_of
from macspec.bench.equality import Compared, Equality
from macspec.bench.report import by_workload, equal, limits, positions, summary
from macspec.bench.sample import ReplyRecorder, Sample, Written
from macspec.bench.verdict import verdict
from macspec.cli.table import Table
from macspec.power import Energy
from macspec.sampling import Sampling
from macspec.stats import ReplyCounter

COSTS = costs_of({rows: float(rows) for rows in (2, 3, 4, 5, 6, 7, 8, 12, 16, 32)}, 0.5)


def written(seconds: float, rounds: list[tuple[int, int]], idle: float = 0.0) -> Written:
    """A reply whose first pass brings a token, and then (drafted, accepted) in each round."""
    recorder = ReplyRecorder(counter=ReplyCounter(prompt_tokens=5))
    now = 0.25
    recorder.count(now, 1, None, 0, 0, 0.0)
    for drafted, accepted in rounds:
        now += seconds
        recorder.count(now, accepted + 1, "draft", drafted, accepted, idle)
    ids = list(range(1 + sum(accepted + 1 for _, accepted in rounds)))
    return recorder.written(ids, "text", knows_idle=True)


def sample(arm: str, what: Written, question: str = "chat-1", **more: object) -> Sample:
    """A sample of the first repeat at temperature 0."""
    given = Sample(
        arm=arm,
        question=question,
        workload=question.partition("-")[0],
        forced=False,
        temperature=0.0,
        repeat=0,
        seed=1,
        at=0.0,
        written=what,
    )
    return replace(given, **more)  # type: ignore[arg-type]


def both(question: str = "chat-1", **more: object) -> list[Sample]:
    """Plain at a token in 0.1 s, and an arm with three tokens in 0.15 s."""
    return [
        sample("plain", written(0.1, [(0, 0)] * 6), question, **more),
        sample("draft", written(0.15, [(4, 2)] * 2, idle=0.03), question, **more),
    ]


def found(samples: list[Sample], **more: object) -> dict[tuple[str, str], Cell]:
    made = cells(samples, "plain", ["plain", "draft"], **more)  # type: ignore[arg-type]
    return {(cell.group, cell.arm): cell for cell in made}


def test_speeds_and_counts() -> None:
    cell = found(both())[ALL, "draft"]
    assert cell.decode_tokens_per_s == pytest.approx(20)
    assert cell.speedup is not None
    assert cell.speedup.value == pytest.approx(2)
    assert cell.whole_speedup is not None
    assert cell.whole_speedup.value == pytest.approx((0.25 + 6 * 0.1) / (0.25 + 2 * 0.15))
    assert cell.tokens_per_pass == pytest.approx(7 / 3)
    assert cell.acceptance == pytest.approx(0.5)
    assert cell.acceptance_by_position == (1, 1, 0, 0)
    assert cell.drafted_by_position == (2, 2, 2, 2)
    assert cell.ttft_s == pytest.approx(0.25)
    assert cell.itl_ms_median == pytest.approx(50)


def test_of_whole_replies_the_one_whose_tokens_all_come_sooner_is_the_faster() -> None:
    def reply(*passes: tuple[float, int]) -> Written:
        recorder = ReplyRecorder(counter=ReplyCounter(prompt_tokens=5))
        for now, tokens in passes:
            recorder.count(now, tokens, "draft", tokens - 1, tokens - 1, 0.0)
        return recorder.written(list(range(8)), "text", "end")

    deep = sample("draft", reply((1.1, 5), (1.4, 3)))
    shallow = sample("plain", reply((1.1, 3), (1.5, 5)))
    cell = found([shallow, deep])[ALL, "draft"]
    assert cell.speedup is not None
    assert cell.whole_speedup is not None
    assert cell.speedup.value < 1 < cell.whole_speedup.value


def test_replies_of_one_pass_count_as_whole_replies_only() -> None:
    cell = found([sample("plain", written(0.1, [])), sample("draft", written(0.1, []))])
    assert cell[ALL, "draft"].speedup is None
    assert cell[ALL, "draft"].whole_speedup is not None


def test_forced_replies_are_never_counted_with_the_others() -> None:
    samples = [*both("chat-1"), *both("json-1", forced=True)]
    groups = {group for group, _ in found(samples)}
    assert groups == {ALL, "chat", ALL + FORCED, "json" + FORCED}
    assert found(samples)[ALL, "draft"].replies == 1


def test_a_reply_during_which_the_machine_slept_has_no_times() -> None:
    cell = found(both(slept=True))[ALL, "draft"]
    assert cell.speedup is None
    assert cell.whole_speedup is None
    assert cell.decode_tokens_per_s is None
    assert cell.tokens_per_pass == pytest.approx(7 / 3)


def test_joules_only_where_most_tokens_have_them() -> None:
    energy = Energy(1.0, 6, "meter", "counters", {"chip": 3.0}, ("chip",))
    one, other = both()
    assert found([one, replace(other, energy=energy)])[ALL, "draft"].joules_per_token == 0.5
    more = [*both("chat-2"), *both("chat-3")]
    cell = found([one, replace(other, energy=energy), *more])[ALL, "draft"]
    assert cell.joules_per_token is None
    short = replace(energy, rails={}, counted=(), reason="0.3 s are too short to measure")
    assert found([one, replace(other, energy=short)])[ALL, "draft"].joules_per_token is None


def test_a_cell_survives_json() -> None:
    for cell in found(both(), costs={"draft": COSTS}).values():
        assert Cell.from_dict(cell.as_dict()) == cell
        older = {name: it for name, it in cell.as_dict().items() if name != "whole_speedup"}
        assert Cell.from_dict(older) == replace(cell, whole_speedup=None)
        stored = cell.as_dict()
        if stored["limits"] is not None:  # the version before had no such entry
            del stored["limits"]["accepted_per_round"]
        assert Cell.from_dict(stored) == cell


def test_what_the_costs_predict() -> None:
    limits = limits_of([both()[1]], COSTS)
    assert limits is not None
    # Two rounds of five rows and four draft steps bring six tokens.
    assert limits.predicted_speedup == pytest.approx(6 / (2 * (5 + 4 * 0.5)))
    assert limits.host_share == pytest.approx(0.2)
    assert (limits.verify_rows, limits.verify_steps, limits.draft_steps) == (5, 5, 2)
    assert (limits.drafted_per_round, limits.accepted_per_round, limits.tokens_per_round) == (
        4,
        2,
        3,
    )
    assert limits.sentence(0.8) == (
        "verifying 5 rows costs 5.00 plain steps on this backend; if it cost one: about 1.87x"
    )


@pytest.mark.parametrize(
    ("costs", "rounds", "idle", "words"),
    [
        (costs_of({5: 1.1}, 2.0), [(4, 4)] * 3, 0.0, "drafting 4.0 tokens costs 8.00"),
        (
            costs_of({5: 1.1}, 0.01),
            [(4, 0)] * 3,
            0.0,
            "0.0 of 4.0 drafted tokens are",
        ),
        (costs_of({5: 1.1}, 0.01), [(4, 4)] * 3, 0.09, "waits for the host 60%"),
        (COSTS, [(0, 0)] * 3, 0.0, "drafted nothing"),
        (COSTS, [(4, 1)] + [(0, 0)] * 30, 0.0, "drafted in 3% of rounds"),
    ],
)
def test_what_limits_an_arm(
    costs: Costs, rounds: list[tuple[int, int]], idle: float, words: str
) -> None:
    limits = limits_of([sample("draft", written(0.15, rounds, idle))], costs)
    assert limits is not None
    assert words in limits.sentence(1.0)


def test_an_arm_that_does_not_tell_its_passes_has_no_limits() -> None:
    hidden = replace(both()[1].written, counts_passes=False)
    cell = found([both()[0], sample("draft", hidden)], costs={"draft": COSTS})[ALL, "draft"]
    assert cell.limits is None
    assert cell.tokens_per_pass is None


def test_equality_is_counted_by_cell() -> None:
    samples = both()
    compared = [Compared(samples[1], None)]
    assert found(samples, compared=compared)[ALL, "draft"].equality == Equality(1, 1, 0)
    assert equal(Equality(5, 3, 1)) == "3/5, 1 near, 1 DIFFER"
    assert equal(Equality()) == "-"


def test_tables_leave_out_what_nobody_knows() -> None:
    made = list(found([*both("chat-1"), *both("maths-1")], costs={"draft": COSTS}).values())
    (table,) = summary(made, "plain")
    text = table.text()
    assert "vs plain" in text
    assert "J/token" not in text
    assert "2.00x" in text
    assert "J/token" in table.markdown()
    (split,) = by_workload(made, "plain")
    assert [row[0] for row in split.rows] == ["chat", "maths"]
    (rates,) = positions(made)
    assert rates.columns == ("arm", "temp.", "1", "2", "3", "4")
    assert rates.rows == (("draft", "0", "1.00", "1.00", "0.00", "0.00"),)
    (why,) = limits(made, "plain")
    assert why.rows[0][0] == "draft"


def test_a_name_cannot_break_a_table() -> None:
    table = Table("a|b", ("x", "y"), (("\x1b[31mred|", "1"),))
    assert "\x1b" not in table.markdown()
    assert "red\\|" in table.markdown()


def test_samples_tell_no_text() -> None:
    clock = Clock()
    arm = ScriptedArm("plain", clock)
    (question,) = questions(1)
    what = arm.write(question, Sampling(temperature=0), True)
    assert what.text == "words"
    shown = sample("plain", what).as_dict()
    assert "words" not in repr(shown)
    assert "ids" not in shown


@pytest.mark.parametrize(
    ("speeds", "sentence"),
    [
        (
            {"auto": (1.4, 1.3, 1.5), "draft@4": (1.42, 1.3, 1.5), "mlx-lm": (3, 2, 4)},
            "speculation makes this pair 1.40x faster on these prompts; auto is within 1% of the "
            "best, draft@4",
        ),
        (
            {"auto": (1.0, 0.9, 1.1), "ngram": (1.5, 1.2, 1.7)},
            "speculation makes no clear difference for this pair (1.00x plain) on these prompts; "
            "auto is 50% behind the best, ngram",
        ),
        (
            {"draft@2": (0.8, 0.7, 0.9)},
            "speculation slows this pair down to 0.80x plain on these prompts",
        ),
        (
            {"auto": (1.2, None, None), "suffix": (1.1, None, None)},
            "too few replies to be sure, but speculation runs at 1.20x plain on these prompts; "
            "auto is the best of 2 settings",
        ),
        ({"mlx-lm": (1.2, 1.1, 1.3)}, ""),
    ],
)
def test_the_verdict_is_a_sentence(
    speeds: dict[str, tuple[float, float | None, float | None]], sentence: str
) -> None:
    (cell,) = [it for it in found(both()).values() if it.whole and it.arm == "draft"]
    cells = [
        replace(cell, arm=arm, speedup=Ratio(*given, tasks=7, pairs=21, over="tasks"))
        for arm, given in speeds.items()
    ]
    assert verdict(cells, "plain") == sentence
    assert verdict(cells, "auto") == ""


def test_a_table_fits_its_terminal() -> None:
    columns = ("arm", *(f"number {n}" for n in range(9)), "why")
    rows = [("auto", *(f"{1.5 * n:.2f}" for n in range(9)), "words " * 12)] * 2
    table = Table("a title", columns, rows, worded=True)
    lines = table.text(60).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines].count("auto") == 2 * 3
    assert table.text(60).count("words") == table.text().count("words") == 24
    assert lines[1].split()[1:] == [part for n in range(5) for part in ("number", str(n))]
    assert max(map(len, table.text().splitlines())) > 100
