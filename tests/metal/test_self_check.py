"""The self-check: what passes and is fast is used, everything else is named and left out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import expected
import mlx.core as mx
import pytest
import quantized
from harness import installed
from harness.mlxlm_kernels import delta_rows, ssm_rows
from matrices import Matmul as Case
from matrices import make, mlx_rows
from mlx_lm.models import gated_delta as gated_delta_of_mlx_lm

from macspec.metal import (
    accept,
    checks,
    dispatch,
    mamba2,
    matmul,
    recorded,
    self_check,
    verify_attention,
)
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.gated_delta import Rows as DeltaRows
from macspec.metal.mamba2 import Mamba2, Rows
from macspec.metal.matmul import Matmul
from macspec.metal.self_check import CRASHED, Outcome, Outcomes
from macspec.metal.variants import Variant, variants_for
from macspec.models import Pair
from macspec.verification import Verdict


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is not the matter here."""
    monkeypatch.setattr(self_check, "CHAIN", 1)
    monkeypatch.setattr(self_check, "REPEATS", 1)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return quantized.pair()


@pytest.fixture
def kept(tmp_path: Path) -> Outcomes:
    return Outcomes(tmp_path / "outcomes.json", {"chip": "M9"})


def ticking(*seconds: float) -> Any:
    """A clock by which the calls of ours and of theirs take so long, in turn."""
    durations = itertools.cycle(seconds)

    def reading() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += next(durations)
            yield now

    return reading().__next__


def some(pair: Pair, *kernels: str) -> tuple[dict[Any, Any], list[Variant]]:
    """The first variant of each kernel."""
    found, asked = variants_for(pair)
    first = {variant.kernel: variant for variant in reversed(asked)}
    return found.matmuls, [first[kernel] for kernel in kernels]


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


def test_every_kernel_passes(pair: Pair, kept: Outcomes) -> None:
    matrices, asked = some(pair, *KERNELS)
    with installed(inspected=False) as names:
        outcomes = self_check.self_check(asked, matrices, kept, ticking(1.0, 2.0))
    assert {str(variant): outcome.failure for variant, outcome in outcomes.items()} == {
        str(variant): None for variant in asked
    }
    assert all(outcome.faster and outcome.speed == 2 for outcome in outcomes.values())
    assert {"verify_qmv", "verify_qmm", "verify_attention", "accept_draw"} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_every_variant_passes(kept: Outcomes, dtype: mx.Dtype) -> None:
    found, asked = variants_for(quantized.pair(dtype=dtype))
    with installed(inspected=False):
        outcomes = self_check.self_check(asked, found.matmuls, kept)
    assert not [f"{v}: {outcome.failure}" for v, outcome in outcomes.items() if outcome.failure]
    assert len(asked) > 70


@pytest.mark.parametrize("bits", [3, 4])
def test_strict_is_compared_with_mlxs_own_order(
    kept: Outcomes, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    _, matrix = make(Case(2, 64, 512, 64, bits, mx.float16))
    product = matrix.shape
    asked = Variant("verify_qmv strict", product, 2)
    monkeypatch.setattr(matmul, "row_by_row", lambda x, m: mlx_rows(x, m, fused=True))
    with installed(inspected=False):
        assert self_check.self_check([asked], {product: matrix}, kept)[asked].failure is None
    monkeypatch.setattr(matmul, "row_by_row", lambda x, m: mlx_rows(x, m, fused=True) + 1)
    with installed(inspected=False):
        fresh = Outcomes(kept._path.with_name("other.json"), {})
        outcome = self_check.self_check([asked], {product: matrix}, fresh)[asked]
    assert outcome.failure == "its bits are not those of MLX's one-row kernel"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (0, None),
        (1e-6, "its bits are not those of mlx-lm's one-row kernel"),
    ],
)
def test_mamba2_is_compared_with_mlx_lms_one_row_kernel(
    kept: Outcomes, monkeypatch: pytest.MonkeyPatch, change: float, words: str | None
) -> None:
    def row_by_row(arguments: Any, count: int, state: mx.array) -> tuple[mx.array, mx.array]:
        out, after = ssm_rows(Rows.of(arguments), count, state)
        return out, after + change

    monkeypatch.setattr(mamba2, "row_by_row", row_by_row)
    shape = Mamba2(8, 2, 8, 32, mx.bfloat16, (mx.float32, mx.bfloat16))
    asked = Variant("mamba2", shape, 2)
    with installed(inspected=False):
        assert self_check.self_check([asked], {}, kept)[asked].failure == words


@pytest.mark.parametrize(
    ("change", "words"),
    [(0, None), (1e-6, "its bits are not those of mlx-lm's kernel")],
)
def test_gated_delta_is_compared_with_mlx_lms_kernel(
    kept: Outcomes, monkeypatch: pytest.MonkeyPatch, change: float, words: str | None
) -> None:
    def by_kernel(*given: mx.array) -> tuple[mx.array, mx.array]:
        y, after = delta_rows(DeltaRows(*given[:-1]), given[-1])
        return y, after + change

    monkeypatch.setattr(gated_delta_of_mlx_lm, "gated_delta_kernel", by_kernel)
    asked = Variant("gated_delta", GatedDelta(4, 8, 64, 16, False, mx.bfloat16), 4)
    with installed(inspected=False):
        assert self_check.self_check([asked], {}, kept)[asked].failure == words


def broken(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, change: Any) -> None:
    intact = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: change(intact(*a, **k)))


def raises(_: Any) -> Any:
    raise RuntimeError("[metal::Device] Unable to build metal library from source\nerror: 'x'")


def next_token(verdict: Any) -> Verdict:
    return Verdict(verdict.accepted, verdict.token + 1)


BREAKS = [
    ("verify_qmv", matmul, lambda y: y + 1e-6, "its bits are not the recorded ones"),
    ("verify_qmv", matmul, raises, "does not run on this machine ([metal::Device]"),
    ("verify_attention", verify_attention, lambda y: y * 1.01, "off by 1"),
    ("verify_attention", verify_attention, lambda y: y * mx.nan, "off by nan"),
    ("accept", accept, next_token, "its choices are not the recorded ones"),
]


@pytest.mark.parametrize(("kernel", "module", "change", "words"), BREAKS)
def test_what_is_wrong_is_named_and_off(
    pair: Pair,
    kept: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    module: Any,
    change: Any,
    words: str,
) -> None:
    broken(monkeypatch, module, kernel, change)
    matrices, (asked,) = some(pair, kernel)
    with installed(inspected=False):
        outcome = self_check.self_check([asked], matrices, kept)[asked]
    assert words in str(outcome.failure)
    assert "\n" not in str(outcome.failure)
    assert not outcome.faster


def test_a_large_matrix_is_compared_at_both_ends(kept: Outcomes) -> None:
    """And an error in its middle shows in the recorded bits, which need no reference."""
    _, matrix = make(Case(2, checks.COMPARED + 80, 64, 32, 4, mx.float32))
    product = matrix.shape
    tried = checks.check_of(Variant("verify_qmv", product, 2), {product: matrix})
    with installed(inspected=False):
        assert tried.failure() is None
        intact = checks.multiply

        def last_is_wrong(kernel: str, x: mx.array, matrix: Any) -> mx.array:
            y = intact(kernel, x, matrix)
            return mx.concatenate([y[:, :-1], y[:, -1:] + 1], axis=1) if y.shape[1] > 2048 else y

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "multiply", last_is_wrong)
            assert "off by" in str(tried.failure())


def test_what_is_slower_is_off(pair: Pair, kept: Outcomes) -> None:
    matrices, asked = some(pair, "verify_qmv")
    with installed(inspected=False):
        (outcome,) = self_check.self_check(asked, matrices, kept, ticking(2.0, 1.9)).values()
    assert outcome.failure is None
    assert not outcome.faster


def test_outcomes_are_kept_for_the_same_machine(pair: Pair, tmp_path: Path) -> None:
    path, here = tmp_path / "outcomes.json", {"chip": "M9", "mlx": "1"}
    matrices, asked = some(pair, "verify_qmv", "accept")
    with installed(inspected=False) as names:
        first = self_check.self_check(asked, matrices, Outcomes(path, here), ticking(1.0, 3.0))
        assert names
        count = len(names)
        assert self_check.self_check(asked, matrices, Outcomes(path, here)) == first
        assert len(names) == count, "nothing was tried again"
        self_check.self_check(asked, matrices, Outcomes(path, {**here, "mlx": "2"}))
        assert len(names) > count


def test_the_machine_is_chip_system_versions_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    here = self_check.machine()
    assert set(here) == {"chip", "macos", "mlx", "macspec", "kernels"}
    assert here["kernels"] == self_check.source_hash()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" ")
    self_check.source_hash.cache_clear()
    try:
        assert self_check.machine()["kernels"] != here["kernels"]
    finally:
        self_check.source_hash.cache_clear()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 99}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "outcomes.json"
    path.write_text(text, encoding="utf-8")
    assert Outcomes(path, {}).found == {}


def test_a_folder_that_cannot_be_written_does_no_harm(pair: Pair, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    matrices, asked = some(pair, "verify_qmv")
    with installed(inspected=False):
        outcomes = self_check.self_check(asked, matrices, Outcomes(blocked / "outcomes.json", {}))
    assert outcomes[asked[0]].failure is None


def test_a_variant_that_ended_the_program_is_not_tried_again(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "outcomes.json"
    matrices, asked = some(pair, "verify_qmv", "accept")

    def dies(*_: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(self_check, "check_of", dies)
        with pytest.raises(SystemExit):
            self_check.self_check(asked, matrices, Outcomes(path, {}))
    with installed(inspected=False):
        outcomes = self_check.self_check(asked, matrices, Outcomes(path, {}), ticking(1.0, 2.0))
    assert outcomes[asked[0]] == Outcome(CRASHED)
    assert outcomes[asked[1]].faster


def test_a_pair_takes_what_passed(
    pair: Pair, kept: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the way from a pair to its kernels, with one of them wrong."""
    _, asked = variants_for(pair)
    right, wrong = asked[0], asked[1]
    for variant in asked[2:]:
        kept.found[str(variant)] = Outcome(None, 2.0, 1.0)
    kept.found[str(wrong)] = Outcome("off by 1.0e-01 of the largest value")
    monkeypatch.setattr(self_check.self_check, "__defaults__", (ticking(1.0, 2.0),))
    with installed(inspected=False):
        kernels = dispatch.checked_kernels(pair, outcomes=kept)
    assert kernels.outcomes[right].faster
    assert kernels.state == f"macspec's verify_qmv, for 1 of {len(asked)} shapes"
    assert any(str(wrong) in notice for notice in kernels.notices)
    assert isinstance(right.shape, Matmul)
