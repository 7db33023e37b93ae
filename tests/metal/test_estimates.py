"""The report of a Mac, and the estimates in it."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from macspec.metal import estimates, report
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.matmul import Matmul
from macspec.metal.outcomes import Outcome, machine
from macspec.metal.variants import Choice, Variant
from macspec.metal.verify_attention import Attention

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
    assert found["variants"][2]["expected_speed"] is None
    assert found["left_to_mlx"] == ["experts"]


@pytest.mark.parametrize("name", estimates.CHIPS)
def test_a_kernel_is_no_faster_than_its_bytes(name: str) -> None:
    """Reading once, instead of once for each row, gains no more than the number of rows."""
    chip = estimates.CHIPS[name]
    for rows in range(2, 9):
        found = estimates.expected(Variant("verify_qmv", SHAPE, rows), chip)
        assert found is not None
        assert 0.5 < found <= rows * 1.1


def test_what_bytes_do_not_tell_is_not_estimated() -> None:
    chip = estimates.CHIPS["Apple M4 Pro"]
    fused = Attention(32, 8, 128, 128, BF16, 1024)
    assert estimates.expected(Variant("verify_attention", fused, 8), chip) is None
    grouped = Attention(64, 8, 128, 128, BF16, 1024)
    # Scores of 64 heads and 8 rows, four times, beside keys and values of 8 heads of 128.
    expected = 1 + 4 * 64 * 8 / (8 * 256)
    assert estimates.expected(Variant("verify_attention", grouped, 8), chip) == expected
    states = GatedDelta(16, 32, 128, 128, False, BF16)
    assert estimates.expected(Variant("gated_delta", states, 4), chip) == 2


def test_the_page_has_the_table() -> None:
    page = Path(estimates.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert estimates.products_table() in page
