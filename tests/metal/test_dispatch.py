"""MetalKernels: what a pair asks for, and which kernel each place of a pass takes."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
import quantized
from harness import installed
from mlx import nn
from mlx_lm.models.switch_layers import SwitchLinear
from quantized import FASTER, all_faster, bound, logits

from macspec import Session
from macspec.errors import BadOptionError
from macspec.kernels import Kernels
from macspec.metal.dispatch import MetalKernels
from macspec.metal.matmul import FLOATS, Matmul
from macspec.metal.outcomes import Outcome, Outcomes
from macspec.metal.start import kernels_for
from macspec.metal.variants import Variant, variants_for, workload
from macspec.metal.verify_attention import Attention
from macspec.models import Pair

SLOWER = Outcome(None, seconds=2.0, mlx_seconds=1.0)
WRONG = Outcome("off by 1.0e-01 of the largest value")


def test_a_workload_finds_what_passes_multiply_and_attend() -> None:
    found = workload(quantized.model(vocabulary=96, dtype=mx.float16))
    assert set(found.matmuls) == {
        Matmul(4, 32, 64, 128, mx.float16),
        Matmul(4, 32, 64, 64, mx.float16),
        Matmul(4, 32, 128, 64, mx.float16),
        Matmul(4, 32, 64, 96, mx.float16),
    }
    assert found.attentions == {Attention(2, 1, 64, 64, mx.float16)}
    assert found.logits == mx.float16
    assert found.unsupported == []


class Direct(nn.Module):
    """A layer that calls MLX's attention itself, with an expert and a dense matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.QuantizedEmbedding(64, 64)
        self.dense = nn.Linear(64, 64)
        self.experts = SwitchLinear(64, 64, 2).to_quantized(group_size=64, bits=4)
        self.layers = [self.dense]

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        x = self.dense(self.embed(tokens))
        heads = x[:, None]
        mixed = mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=1.0)[:, 0]
        which = mx.zeros((*tokens.shape, 1), mx.uint32)
        chosen = self.experts(mixed[..., None, None, :], which)
        return self.embed.as_linear(chosen.reshape(x.shape))


def test_a_workload_says_what_keeps_mlxs_kernels() -> None:
    kept = " | ".join(workload(Direct()).unsupported)
    for words in ("attention: the model calls it", "experts:", "not quantized"):
        assert words in kept


@pytest.mark.parametrize("mode", FLOATS)
def test_matrices_of_small_floats_have_kernels(mode: str) -> None:
    module = nn.Sequential(nn.Linear(64, 64, bias=False))
    nn.quantize(module, mode=mode, group_size=FLOATS[mode][1], bits=FLOATS[mode][0])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [module]

        def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
            return module(mx.broadcast_to(tokens[..., None], (*tokens.shape, 64)) * 1.0)

    model, tokens = Model(), mx.array([[2, 3, 5]])
    shape = Matmul(*FLOATS[mode], 64, 64, mx.float32, mode)
    assert set(workload(model).matmuls) == {shape}
    kernels = MetalKernels(model, {Variant("verify_qmv", shape, 3): FASTER})
    with installed(inspected=False) as names, kernels.passing(3):
        out = model(tokens)
    assert names == ["verify_qmv"]
    assert mx.allclose(out, model(tokens), rtol=1e-4, atol=1e-4)


def launched(kernels: MetalKernels, module: Any, rows: int) -> collections.Counter[str]:
    with installed(inspected=False) as names, kernels.passing(rows):
        logits(module, rows)
    return collections.Counter(names)


def test_only_what_is_right_and_faster_is_launched(pair: Pair) -> None:
    module = pair.target.module
    _found, asked = variants_for(pair)
    one = Matmul(4, 32, 64, 128, mx.float32)
    outcomes = dict.fromkeys(asked, SLOWER)
    chosen = Variant("verify_qmv", one, 4)
    kernels = MetalKernels(module, {**outcomes, chosen: FASTER})
    assert launched(kernels, module, 4) == {"verify_qmv": 2 * 3}, "q, gate and up of two layers"
    assert not launched(kernels, module, 5)
    assert not launched(kernels, module, 1)
    assert not launched(MetalKernels(module, {**outcomes, chosen: WRONG}), module, 4)
    assert not launched(MetalKernels(module, {}), module, 4)


def test_of_two_kernels_the_faster_is_taken(pair: Pair) -> None:
    module = pair.target.module
    one = Matmul(4, 32, 64, 128, mx.float32)
    qmv, qmm = Variant("verify_qmv", one, 8), Variant("verify_qmm", one, 8)
    for fast, slow, name in ((qmv, qmm, "verify_qmv"), (qmm, qmv, "verify_qmm")):
        kernels = MetalKernels(
            module, {slow: Outcome(None, 0.9, 1.0), fast: Outcome(None, 0.5, 1.0)}
        )
        assert set(launched(kernels, module, 8)) == {name}


def test_rows_between_two_measured_numbers_count_as_the_next(pair: Pair) -> None:
    module = pair.target.module
    one = Matmul(4, 32, 64, 128, mx.float32)
    kernels = MetalKernels(module, {Variant("verify_qmm", one, 12): FASTER})
    assert {rows: bool(launched(kernels, module, rows)) for rows in (8, 9, 12, 13)} == {
        8: False,
        9: True,
        12: True,
        13: False,
    }


def test_attention_depends_on_rows_and_context(pair: Pair) -> None:
    shape = Attention(2, 1, 64, 64, mx.float32)
    at = replace(shape, length=1024)
    kernels = MetalKernels(pair.target.module, {Variant("verify_attention", at, 4): FASTER})
    assert kernels.attends(shape, 3, 500)
    assert not kernels.attends(shape, 2, 500)
    assert not kernels.attends(shape, 5, 500)
    assert not kernels.attends(shape, 4, 8000)
    assert not kernels.attends(shape, 17, 500)
    assert not kernels.attends(replace(shape, dtype=mx.float16), 4, 500)


@pytest.mark.parametrize("what", ["mask", "sinks", "batch", "keys of another type", "no mask"])
def test_attention_of_another_kind_stays_with_mlx(kernels: MetalKernels, what: str) -> None:
    queries = mx.zeros((2 if what == "batch" else 1, 2, 4, 64))
    keys = mx.zeros((queries.shape[0], 1, 9, 64))
    if what == "keys of another type":
        keys = keys.astype(mx.float16)
    mask = {"mask": mx.ones((4, 9), mx.bool_), "no mask": None}.get(what, "causal")
    sinks = mx.zeros((2,)) if what == "sinks" else None
    with installed() as names, kernels.passing(4):
        bound()(queries, keys, keys.astype(mx.float32), None, 1.0, mask, sinks)
    assert not names


def test_strict_takes_only_products_in_mlxs_order(pair: Pair) -> None:
    built_in = quantized.pair(bits=3)
    _, asked = variants_for(built_in, strict=True)
    assert {variant.kernel for variant in asked} == {
        "verify_qmv_strict",
        "accept",
        "draft_sample",
    }
    module = built_in.target.module
    kernels = MetalKernels(module, dict.fromkeys(asked, SLOWER), strict=True)
    for rows in (2, 8, 9, 17):
        assert launched(kernels, module, rows) == {"verify_qmv_strict": 15}, rows
    wrong = MetalKernels(module, dict.fromkeys(asked, WRONG), strict=True)
    assert not launched(wrong, module, 4)


def test_the_key_is_that_of_the_choice(pair: Pair, kernels: MetalKernels) -> None:
    _, asked = variants_for(pair)
    module = pair.target.module
    assert kernels.key == all_faster(pair).key
    assert MetalKernels(module, dict.fromkeys(asked, SLOWER)).key == Kernels.key
    one_less = {**dict.fromkeys(asked, FASTER), asked[0]: SLOWER}
    assert len({kernels.key, MetalKernels(module, one_less).key, Kernels.key}) == 3


def test_notices_name_what_is_wrong_and_count_what_is_slow(pair: Pair) -> None:
    _, asked = variants_for(pair)
    outcomes = {**dict.fromkeys(asked, FASTER), asked[0]: WRONG, asked[1]: SLOWER}
    kernels = MetalKernels(pair.target.module, outcomes, ["experts: kept"])
    assert kernels.notices[0] == "experts: kept"
    assert kernels.notices[1].startswith(str(asked[0]))
    assert "off by" in kernels.notices[1]
    assert kernels.notices[2] == "1 shape: MLX's kernel is as fast or faster"


@pytest.mark.skipif(mx.metal.is_available(), reason="needs a machine that is no Mac")
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_without_metal_everything_is_mlxs(pair: Pair, mode: str) -> None:
    chosen = kernels_for(pair, mode)
    assert type(chosen) is Kernels
    assert "no Metal" in chosen.state
    assert Session(pair, kernels=mode).kernels.key == "mlx"


def test_with_metal_a_pair_gets_what_passed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def passed(jobs: Any, known: Outcomes) -> Iterator[Any]:
        known.found.update({str(variant): FASTER for variant, _ in jobs})
        yield from ()

    monkeypatch.setattr("macspec.metal.start.on_metal", lambda: True)
    monkeypatch.setattr("macspec.metal.start.self_check", passed)
    chosen = kernels_for(pair)
    assert isinstance(chosen, MetalKernels)
    assert not chosen.strict
    strict = kernels_for(pair, "strict")
    assert isinstance(strict, MetalKernels)
    assert strict.strict


def test_a_pair_that_cannot_be_checked_is_no_reason_not_to_chat(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("[metal] no such thing")

    monkeypatch.setattr("macspec.metal.start.on_metal", lambda: True)
    monkeypatch.setattr("macspec.metal.start.variants_for", fails)
    chosen = kernels_for(pair)
    assert type(chosen) is Kernels
    assert "no such thing" in chosen.state


def test_off_is_off_and_nonsense_is_refused(pair: Pair) -> None:
    assert "switched off" in kernels_for(pair, "off").state
    with pytest.raises(BadOptionError, match="auto, off, strict"):
        Session(pair, kernels="fast")
