"""The report of a Mac, and the estimates in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from macspec.metal import checks, estimates, report
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.matmul import Matmul
from macspec.metal.outcomes import Outcome, machine
from macspec.metal.variants import ACCEPT, CHOICE_ROWS, WALK_ROWS, Choice, Variant
from macspec.metal.verify_attention import Attention
from macspec.metal.walks import MARKOV, SELECTOR, Walk

BF16 = mx.bfloat16
SHAPE = Matmul(4, 64, 4096, 12288, BF16)


def test_each_estimate_stands_beside_its_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "machine", lambda: {**machine(), "chip": "Apple M1"})
    outcomes = {
        Variant("verify_qmv", SHAPE, 4): Outcome(None, 1.0, 3.0, 2.9),
        Variant("verify_qmv", SHAPE, 2): Outcome(None, 1.0, 1.01, 0.99),
        Variant("accept", Choice("greedy", False, 100, BF16), 5): Outcome("it does not run"),
        Variant("verify_qmm", SHAPE, 8): None,
    }
    found = report.report(outcomes, ["experts"], "target", None)
    verdicts = [it["verdict"] for it in found["variants"]]
    assert verdicts == ["faster", "not faster", "failed", "unchecked"]
    assert found["variants"][0]["speed"] == 3
    assert found["variants"][0]["least_speed"] == 2.9
    assert found["variants"][0]["expected_speed"] == 4.0
    assert all(it["expected_speed"] for it in found["variants"])
    assert found["left_to_mlx"] == ["experts"]


@pytest.mark.parametrize("name", estimates.CHIPS)
def test_a_kernel_is_no_faster_than_its_bytes(name: str) -> None:
    """Reading once, instead of once for each row, gains no more than the number of rows."""
    chip = estimates.CHIPS[name]
    for rows in range(2, 9):
        found = estimates.expected(Variant("verify_qmv", SHAPE, rows), chip)
        assert 0.5 < found <= rows * 1.1


def test_attention_takes_the_longer_of_bytes_and_instructions() -> None:
    chip = estimates.CHIPS["Apple M3"]
    wide = replace(chip, cores=10**6)  # Bytes alone.

    def gain(query_heads: int, rows: int, chip: estimates.Chip) -> float:
        shape = Attention(query_heads, 8, 128, 128, BF16, 1024)
        return estimates.expected(Variant("verify_attention", shape, rows), chip)

    assert gain(32, 8, wide) == 1, "fused: both read each key once"
    # Scores of 64 heads and 8 rows, four times, beside keys and values of 8 heads of 128.
    assert gain(64, 8, wide) == 1 + 4 * 64 * 8 / (8 * 256)
    assert gain(32, 2, chip) == 1
    assert gain(32, 8, chip) > 2, "MLX unpacks for each of 32 lines, here 8 share it"


def test_recurrences_take_the_longer_of_bytes_and_instructions() -> None:
    chip = estimates.CHIPS["Apple M4 Pro"]
    shape = GatedDelta(16, 48, 128, 128, False, BF16)

    def gain(rows: int) -> float:
        return estimates.expected(Variant("gated_delta", shape, rows), chip)

    assert gain(4) == 2
    assert 1 < gain(16) < 2, "arithmetic binds"


def test_strict_reads_weights_once_a_tile() -> None:
    chip = estimates.CHIPS["Apple M4 Pro"]
    eight, sixteen = (
        estimates.expected(Variant("verify_qmv_strict", SHAPE, rows), chip) for rows in (8, 16)
    )
    ratio = estimates.MLX_ROWS[12] / estimates.MLX_ROWS[8]
    assert sixteen == pytest.approx(eight * ratio / 2)


VIEWS = {"Reshape", "Broadcast", "ExpandDims", "Squeeze", "Transpose", "Slice"}
"""What MLX computes without a launch."""


def operations(variant: Variant) -> int:
    """Of the portable computation that the kernel is timed against."""
    check = checks.check_of(variant)
    records: list[Any] = []
    mx.export_function(records.append, check.mlx, check.start)
    return sum("name" in it and it["name"] not in VIEWS for it in records)


@pytest.mark.parametrize(("kernel", "rule", "truncated"), estimates.CHOOSING)
def test_operations_of_choosing_are_counted(kernel: str, rule: str, truncated: bool) -> None:
    variant = Variant(kernel, Choice(rule, truncated, 64, mx.float32), CHOICE_ROWS[kernel])
    # The chain of calls adds a product and a sum for each result.
    chain = 4 if kernel == ACCEPT else 2
    found = operations(variant) - chain
    counted = estimates.CHOOSING[kernel, rule, truncated].operations
    assert abs(found - counted) <= 1 + counted / 10, found


def test_walks_are_estimated() -> None:
    chip = estimates.CHIPS["Apple M4 Pro"]
    selector = Variant(SELECTOR.name, Walk(SELECTOR.name, 16, 8, 64, mx.float32), WALK_ROWS)
    # Its candidates are drawn first, which takes twenty operations.
    assert abs(operations(selector) / WALK_ROWS - estimates.SELECTING) < 5
    assert estimates.expected(selector, chip) == estimates.SELECTING * 7 / 8
    table = Variant(MARKOV.name, Walk(MARKOV.name, 10**6, 256, 10**6, BF16), WALK_ROWS)
    assert 1 < estimates.expected(table, chip) < 1.1


@pytest.mark.parametrize("table", estimates.TABLES)
def test_the_page_has_the_tables(table: Callable[[], str]) -> None:
    page = Path(estimates.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert table() in page
