"""What a kernel must give on this machine: what is wrong, or slower, is named and left out."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import expected
import mlx.core as mx
import pytest
import quantized
from harness import installed
from harness.mlxlm_kernels import delta_rows, ssm_rows
from matrices import mlx_rows
from mlx_lm.models import gated_delta as gated_delta_of_mlx_lm

from macspec.metal import (
    accept,
    checks,
    mamba2,
    matmul,
    outcomes,
    recorded,
    self_check,
    start,
    timing,
    variants,
    verify_attention,
)
from macspec.metal.comparison import Check
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.gated_delta import Rows as DeltaRows
from macspec.metal.mamba2 import Mamba2, Rows
from macspec.metal.matmul import Matmul
from macspec.metal.outcomes import Outcome, Outcomes
from macspec.metal.self_check import Checking
from macspec.metal.variants import Variant, variants_for
from macspec.models import Pair
from macspec.verification import Verdict


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is not the matter here."""
    monkeypatch.setattr(timing, "CHAIN", 1)
    monkeypatch.setattr(timing, "REPEATS", 2)
    monkeypatch.setattr(timing, "warm_up", lambda: None)
    monkeypatch.setattr(checks, "LONG", (300,))


def ticking(ours: float, theirs: float) -> Callable[[], float]:
    """A clock by which a call of ours and one of theirs take so long, whichever is first."""

    def reading() -> Iterator[float]:
        now = 0.0
        for seconds in itertools.cycle((theirs, ours, ours, theirs)):
            yield now
            now += seconds
            yield now

    return reading().__next__


def some(pair: Pair, *kernels: str) -> list[Variant]:
    """The first variant of each kernel."""
    first = {variant.kernel: variant for variant in reversed(variants_for(pair)[1])}
    return [first[kernel] for kernel in kernels]


def failure(variant: Variant) -> str | None:
    with installed(inspected=False):
        return timing.outcome_of(variant).failure


KERNELS = ("verify_qmv", "verify_qmm", "verify_attention", "accept", "draft_sample")


def test_the_recorded_bits_are_those_of_the_references() -> None:
    assert recorded.recorded() == json.loads(json.dumps(expected.compute()))


def test_recorded_draws_do_not_hang_on_rounding() -> None:
    for truncated in (False, True):
        how = recorded.recorded_sampling("drawn", truncated)
        for draw in range(recorded.DEPTH + 1):
            noise = recorded.recorded_noise("drawn", draw)
            assert noise is not None
            scores = how.scores(recorded.recorded_logits(mx.float32), None) + noise.gumbel(0)
            best = mx.sort(scores, axis=-1)[:, -2:]
            assert mx.min(best[:, 1] - best[:, 0]).item() > 1e-3


def test_every_kernel_passes(pair: Pair) -> None:
    with installed(inspected=False) as names:
        found = {str(it): timing.outcome_of(it) for it in some(pair, *KERNELS)}
    assert {name: outcome.failure for name, outcome in found.items()} == dict.fromkeys(found)
    assert all(outcome.speed for outcome in found.values())
    assert {"verify_qmv", "verify_qmm", "verify_attention", "accept_draw"} <= set(names)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_every_variant_passes(dtype: mx.Dtype) -> None:
    asked = variants_for(quantized.pair(dtype=dtype))[1]
    found = {str(variant): failure(variant) for variant in asked}
    assert found == dict.fromkeys(found)
    assert len(asked) > 70


@pytest.mark.parametrize("bits", [3, 4])
def test_strict_is_compared_with_mlxs_own_order(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    asked = Variant("verify_qmv_strict", Matmul(bits, 64, 512, 64, mx.float16), 2)
    monkeypatch.setattr(matmul, "row_by_row", lambda x, m: mlx_rows(x, m, fused=True))
    assert failure(asked) is None
    monkeypatch.setattr(matmul, "row_by_row", lambda x, m: mlx_rows(x, m, fused=True) + 1)
    assert failure(asked) == "its bits are not those of MLX's one-row kernel"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (0, None),
        (1e-6, "its bits are not those of mlx-lm's one-row kernel"),
    ],
)
def test_mamba2_is_compared_with_mlx_lms_one_row_kernel(
    monkeypatch: pytest.MonkeyPatch, change: float, words: str | None
) -> None:
    def row_by_row(arguments: Any, count: int, state: mx.array) -> tuple[mx.array, mx.array]:
        out, after = ssm_rows(Rows.of(arguments), count, state)
        return out, after + change

    monkeypatch.setattr(mamba2, "row_by_row", row_by_row)
    shape = Mamba2(8, 2, 8, 32, mx.bfloat16, (mx.float32, mx.bfloat16))
    asked = Variant("mamba2", shape, 2)
    assert failure(asked) == words


@pytest.mark.parametrize(
    ("change", "words"),
    [(0, None), (1e-6, "its bits are not those of mlx-lm's kernel")],
)
def test_gated_delta_is_compared_with_mlx_lms_kernel(
    monkeypatch: pytest.MonkeyPatch, change: float, words: str | None
) -> None:
    def by_kernel(*given: mx.array) -> tuple[mx.array, mx.array]:
        y, after = delta_rows(DeltaRows(*given[:-1]), given[-1])
        return y, after + change

    monkeypatch.setattr(gated_delta_of_mlx_lm, "gated_delta_kernel", by_kernel)
    asked = Variant("gated_delta", GatedDelta(4, 8, 64, 16, False, mx.bfloat16), 4)
    assert failure(asked) == words


def broken(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, change: Any) -> None:
    intact = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: change(intact(*a, **k)))


def next_token(verdict: Any) -> Verdict:
    return Verdict(verdict.accepted, verdict.token + 1)


BREAKS = [
    ("verify_qmv", checks, "multiply", lambda y: y + 1e-6, "its bits are not the recorded ones"),
    ("verify_attention", verify_attention, "verify_attention", lambda y: y * 1.01, "off by 1"),
    ("verify_attention", verify_attention, "verify_attention", lambda y: y * mx.nan, "off by nan"),
    ("accept", accept, "accept", next_token, "its choices are not the recorded ones"),
]


@pytest.mark.parametrize(("kernel", "module", "name", "change", "words"), BREAKS)
def test_what_is_wrong_is_named_and_off(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    module: Any,
    name: str,
    change: Any,
    words: str,
) -> None:
    broken(monkeypatch, module, name, change)
    (asked,) = some(pair, kernel)
    assert words in str(failure(asked))


@pytest.mark.parametrize("at", [0, 1100, -1])
def test_a_large_matrix_is_compared_at_both_ends_and_between(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(checks, "COMPARED", 8)
    asked = Variant("verify_qmv", Matmul(4, 32, 64, 2200, mx.float32), 2)
    tried = checks.check_of(asked)
    intact = checks.multiply

    def one_is_wrong(kernel: str, x: mx.array, matrix: Any) -> mx.array:
        y = intact(kernel, x, matrix)
        return y.at[:, at].add(1) if y.shape[1] == 2200 else y

    with installed(inspected=False):
        assert tried.failure() is None
        monkeypatch.setattr(checks, "multiply", one_is_wrong)
        assert "off by" in str(tried.failure())


@pytest.mark.parametrize(
    ("ours", "theirs", "faster"), [(1.0, 2.0, True), (1.0, 1.02, False), (2.0, 1.9, False)]
)
def test_what_is_not_clearly_faster_is_off(ours: float, theirs: float, faster: bool) -> None:
    check = Check(mx.zeros(1), lambda x: x, lambda x: x, lambda: None)
    outcome = Outcome(None, *timing.timed(check, ticking(ours, theirs)))
    assert outcome.speed == pytest.approx(theirs / ours)
    assert outcome.least == pytest.approx(theirs / ours)
    assert outcome.faster == faster


def test_noise_is_no_speed() -> None:
    assert not Outcome(None, 1.0, 1.2, 0.97).faster
    assert Outcome(None, 1.0, 1.2, 1.01).faster


def test_as_many_matrices_are_read_in_turn_as_the_model_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = Matmul(4, 64, 512, 64, mx.bfloat16)
    assert len(checks.matrices(shape, 3)) == 3
    monkeypatch.setattr(checks, "STREAMED", 2 * matmul.packed_bytes(shape))
    assert len(checks.matrices(shape, 4)) == 2
    seen = []

    def prepared(kernel: str, x: mx.array, matrix: Any) -> Callable[[mx.array], mx.array]:
        return lambda x: seen.append(id(matrix)) or x

    monkeypatch.setattr(checks, "prepared", prepared)
    check = checks.check_of(Variant("verify_qmv", shape, 2), 4)
    for _ in range(4):
        check.ours(check.start)
    assert seen[:2] == seen[2:]
    assert len({*seen}) == 2


def test_the_machine_is_chip_system_versions_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    here = outcomes.machine()
    assert set(here) == {"chip", "macos", "mlx", "macspec", "kernels"}
    assert here["kernels"] == outcomes.source_hash()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" ")
    outcomes.source_hash.cache_clear()
    try:
        assert outcomes.machine()["kernels"] != here["kernels"]
    finally:
        outcomes.source_hash.cache_clear()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 99}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "outcomes.json"
    path.write_text(text, encoding="utf-8")
    assert Outcomes(path, {}).found == {}


def test_variants_reach_the_process_that_checks_them(pair: Pair) -> None:
    shapes = (GatedDelta(4, 8, 64, 16, False, mx.bfloat16),)
    asked = [*variants_for(pair)[1], *(Variant("gated_delta", shape, 4) for shape in shapes)]
    assert pickle.loads(pickle.dumps(asked)) == asked


@pytest.mark.slow
@pytest.mark.skipif(mx.metal.is_available(), reason="needs a machine that is no Mac")
def test_the_real_checker_reports_that_there_is_no_metal(pair: Pair, tmp_path: Path) -> None:
    known = Outcomes(tmp_path / "outcomes.json", {})
    (asked,) = some(pair, "verify_qmv")
    for _ in self_check.self_check([(asked, 2)], known):
        pass
    assert "it does not run on this machine ([metal_kernel]" in str(known.found[str(asked)].failure)


def test_a_pair_takes_what_passed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the way from a pair to its kernels: what is urgent is checked first."""
    known, asked = Outcomes(tmp_path / "outcomes.json", {}), variants_for(pair)[1]
    right, wrong, *others = asked
    reports: list[Checking] = []

    def scripted(jobs: Any, found: Outcomes) -> Iterator[Checking]:
        for number, (variant, _) in enumerate(jobs):
            yield Checking(number, len(jobs))
            found.found[str(variant)] = Outcome(None, 2.0, 1.0)
        found.found[str(right)] = Outcome(None, 1.0, 2.0)
        found.found[str(wrong)] = Outcome("off by 1.0e-01 of the largest value")

    monkeypatch.setattr(start, "self_check", scripted)
    kernels = start.checked_kernels(pair, outcomes=known, report=reports.append, rest=False)
    urgent = [variant for variant in asked if variants.urgent(variant)]
    assert reports == [Checking(number, len(urgent)) for number in range(len(urgent))]
    assert set(kernels.outcomes) == set(urgent) != set(asked)
    assert kernels.outcomes[right].faster
    assert kernels.state == f"macspec's verify_qmv, for 1 of {len(urgent)} shapes"
    assert any(str(wrong) in notice for notice in kernels.notices)
    assert kernels.fallback == (
        f"1 kernel failed the self-check on this Mac ({wrong}: off by 1.0e-01 of the largest "
        "value): MLX's compute instead; macspec check --kernels lists them"
    )
    state, said = kernels.state, [kernels.state for _ in kernels.idle()]
    assert said == [
        f"{state}; checking the others: {at} of {len(asked)}" for at in range(len(asked))
    ]
    assert kernels.state == state
    assert {str(it) for it in others} <= set(known.found)


def test_the_user_hears_of_a_check_that_ended_early_and_of_kernels_that_cannot_be_used(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Outcomes(tmp_path / "outcomes.json", {})

    def lost(jobs: Any, found: Outcomes) -> Iterator[Checking]:
        found.cut_short = "the GPU does not answer"
        yield Checking(0, 1)

    monkeypatch.setattr(start, "self_check", lost)
    kernels = start.checked_kernels(pair, outcomes=known)
    early = "the self-check ended early: the GPU does not answer"
    assert early in kernels.notices
    assert (kernels.fallback or "").startswith(f"{early}: MLX's compute instead")

    def bent(*given: Any, **named: Any) -> Any:
        raise ValueError("it is bent")

    monkeypatch.setattr(start, "checked_kernels", bent)
    monkeypatch.setattr(start, "on_metal", lambda: True)
    said = start.kernels_for(pair).fallback
    assert said == "MLX's kernels compute: macspec's cannot be used with this pair (it is bent)"
