"""The proof at start: what is right and fast is used, everything else is named and left out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import quantized
from harness import installed
from matrices import Product as Case
from matrices import make, mlx_rows

from macspec.metal import accept, expected, proof, trials, verify_attention, verify_qmv
from macspec.metal.dispatch import dispatch, needs
from macspec.metal.proof import INTERRUPTED, Outcome, Proofs, prove
from macspec.metal.survey import product_of
from macspec.metal.variants import Product, Variant
from macspec.models import Pair
from macspec.verification import Verdict


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is not the matter here."""
    monkeypatch.setattr(proof, "CHAIN", 1)
    monkeypatch.setattr(proof, "REPEATS", 1)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return quantized.pair()


@pytest.fixture
def proofs(tmp_path: Path) -> Proofs:
    return Proofs(tmp_path / "proofs.json", {"chip": "M9"})


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
    found, asked = needs(pair)
    first = {variant.kernel: variant for variant in reversed(asked)}
    return found.products, [first[kernel] for kernel in kernels]


KERNELS = ("verify_qmv", "verify_qmm", "verify_attention", "accept", "draft_sample")


def test_the_recorded_bits_are_those_of_the_references() -> None:
    assert expected.recorded() == json.loads(json.dumps(expected.compute()))


def test_recorded_draws_do_not_hang_on_rounding() -> None:
    for truncated in (False, True):
        how = expected.sampling("drawn", truncated)
        for draw in range(expected.DEPTH + 1):
            noise = expected.noise("drawn", draw)
            assert noise is not None
            scores = how.scores(expected.logits(mx.float32), None) + noise.gumbel(0)
            best = mx.sort(scores, axis=-1)[:, -2:]
            assert mx.min(best[:, 1] - best[:, 0]).item() > 1e-3


def test_every_kernel_proves_itself(pair: Pair, proofs: Proofs) -> None:
    matrices, asked = some(pair, *KERNELS)
    with installed(inspected=False) as names:
        outcomes = prove(asked, matrices, proofs, ticking(1.0, 2.0))
    assert {str(variant): outcome.wrong for variant, outcome in outcomes.items()} == {
        str(variant): None for variant in asked
    }
    assert all(outcome.faster and outcome.speed == 2 for outcome in outcomes.values())
    assert {"verify_qmv", "verify_qmm", "verify_attention", "accept_draw"} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_every_variant_proves_itself(proofs: Proofs, dtype: mx.Dtype) -> None:
    found, asked = needs(quantized.pair(dtype=dtype))
    with installed(inspected=False):
        outcomes = prove(asked, found.products, proofs)
    assert not [f"{v}: {outcome.wrong}" for v, outcome in outcomes.items() if outcome.wrong]
    assert len(asked) > 70


@pytest.mark.parametrize("bits", [3, 4])
def test_strict_is_compared_with_mlxs_own_order(
    proofs: Proofs, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    x, matrix = make(Case(2, 64, 512, 64, bits, mx.float16))
    product = product_of(matrix, x.dtype)
    asked = Variant("verify_qmv strict", product, 2)
    monkeypatch.setattr(verify_qmv, "one_by_one", lambda x, m: mlx_rows(x, m, fused=True))
    with installed(inspected=False):
        assert prove([asked], {product: matrix}, proofs)[asked].wrong is None
    monkeypatch.setattr(verify_qmv, "one_by_one", lambda x, m: mlx_rows(x, m, fused=True) + 1)
    with installed(inspected=False):
        fresh = Proofs(proofs._path.with_name("other.json"), {})
        outcome = prove([asked], {product: matrix}, fresh)[asked]
    assert outcome.wrong == "other bits than MLX's product of one row"


def broken(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, change: Any) -> None:
    intact = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: change(intact(*a, **k)))


def raises(_: Any) -> Any:
    raise RuntimeError("[metal::Device] Unable to build metal library from source\nerror: 'x'")


def next_token(verdict: Any) -> Verdict:
    return Verdict(verdict.accepted, verdict.token + 1)


BREAKS = [
    ("verify_qmv", verify_qmv, lambda y: y + 1e-6, "other bits than recorded"),
    ("verify_qmv", verify_qmv, raises, "does not run here ([metal::Device]"),
    ("verify_attention", verify_attention, lambda y: y * 1.01, "off by 1"),
    ("verify_attention", verify_attention, lambda y: y * mx.nan, "off by nan"),
    ("accept", accept, next_token, "other choices than recorded"),
]


@pytest.mark.parametrize(("kernel", "module", "change", "words"), BREAKS)
def test_what_is_wrong_is_named_and_off(
    pair: Pair,
    proofs: Proofs,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    module: Any,
    change: Any,
    words: str,
) -> None:
    broken(monkeypatch, module, kernel, change)
    matrices, (asked,) = some(pair, kernel)
    with installed(inspected=False):
        outcome = prove([asked], matrices, proofs)[asked]
    assert words in str(outcome.wrong)
    assert "\n" not in str(outcome.wrong)
    assert not outcome.faster


def test_a_large_matrix_is_compared_at_both_ends(proofs: Proofs) -> None:
    """And an error in its middle shows in the recorded bits, which need no reference."""
    x, matrix = make(Case(2, trials.COMPARED + 80, 64, 32, 4, mx.float32))
    product = product_of(matrix, x.dtype)
    tried = trials.trial(Variant("verify_qmv", product, 2), {product: matrix})
    with installed(inspected=False):
        assert tried.wrong() is None
        intact = trials.multiply

        def last_is_wrong(kernel: str, x: mx.array, matrix: Any) -> mx.array:
            y = intact(kernel, x, matrix)
            return mx.concatenate([y[:, :-1], y[:, -1:] + 1], axis=1) if y.shape[1] > 2048 else y

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trials, "multiply", last_is_wrong)
            assert "off by" in str(tried.wrong())


def test_what_is_slower_is_off(pair: Pair, proofs: Proofs) -> None:
    matrices, asked = some(pair, "verify_qmv")
    with installed(inspected=False):
        (outcome,) = prove(asked, matrices, proofs, ticking(2.0, 1.9)).values()
    assert outcome.wrong is None
    assert not outcome.faster
    assert outcome.why_not == "MLX's is as fast or faster"


def test_outcomes_are_kept_for_the_same_machine(pair: Pair, tmp_path: Path) -> None:
    path, here = tmp_path / "proofs.json", {"chip": "M9", "mlx": "1"}
    matrices, asked = some(pair, "verify_qmv", "accept")
    with installed(inspected=False) as names:
        first = prove(asked, matrices, Proofs(path, here), ticking(1.0, 3.0))
        assert names
        count = len(names)
        assert prove(asked, matrices, Proofs(path, here)) == first
        assert len(names) == count, "nothing was tried again"
        prove(asked, matrices, Proofs(path, {**here, "mlx": "2"}))
        assert len(names) > count


def test_the_machine_is_chip_system_versions_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    here = proof.machine()
    assert set(here) == {"chip", "macos", "mlx", "macspec", "kernels"}
    assert here["kernels"] == proof.text_key()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" ")
    proof.text_key.cache_clear()
    try:
        assert proof.machine()["kernels"] != here["kernels"]
    finally:
        proof.text_key.cache_clear()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 99}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "proofs.json"
    path.write_text(text, encoding="utf-8")
    assert Proofs(path, {}).outcomes == {}


def test_a_folder_that_cannot_be_written_does_no_harm(pair: Pair, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    matrices, asked = some(pair, "verify_qmv")
    with installed(inspected=False):
        outcomes = prove(asked, matrices, Proofs(blocked / "proofs.json", {}))
    assert outcomes[asked[0]].wrong is None


def test_a_variant_that_ended_the_program_is_not_tried_again(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "proofs.json"
    matrices, asked = some(pair, "verify_qmv", "accept")

    def dies(*_: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(proof, "trial", dies)
        with pytest.raises(SystemExit):
            prove(asked, matrices, Proofs(path, {}))
    with installed(inspected=False):
        outcomes = prove(asked, matrices, Proofs(path, {}), ticking(1.0, 2.0))
    assert outcomes[asked[0]] == Outcome(INTERRUPTED)
    assert outcomes[asked[1]].faster


def test_a_pair_takes_what_proved_itself(
    pair: Pair, proofs: Proofs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the way from a pair to its kernels, with one of them wrong."""
    _, asked = needs(pair)
    right, wrong = asked[0], asked[1]
    for variant in asked[2:]:
        proofs.outcomes[str(variant)] = Outcome(None, 2.0, 1.0)
    proofs.outcomes[str(wrong)] = Outcome("off by 1.0e-01 of the largest value")
    monkeypatch.setattr(proof.prove, "__defaults__", (ticking(1.0, 2.0),))
    with installed(inspected=False):
        kernels = dispatch(pair, proofs=proofs)
    assert kernels.outcomes[right].faster
    assert kernels.state == f"macspec's verify_qmv, for 1 of {len(asked)} shapes"
    assert any(str(wrong) in notice for notice in kernels.notices)
    assert isinstance(right.shape, Product)
