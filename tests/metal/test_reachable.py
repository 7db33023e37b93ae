"""Every text that a pass of 2 to 33 rows can need was compiled by the self-check before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import export
import mlx.core as mx
import pytest
import quantized

from macspec.metal import (
    accept,
    checks,
    choicechecks,
    gated_delta,
    mamba2,
    matmul,
    verify_attention,
    walks,
)
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.mamba2 import Mamba2, Rows
from macspec.metal.matmul import STRICT, Matmul, multiply
from macspec.metal.variants import (
    ATTENTION,
    ATTENTION_ROWS,
    CHOICES,
    LENGTHS,
    RECURRENCE_ROWS,
    WALK_ROWS,
    Variant,
    _of_matmul,
    at_least,
    matmul_rows,
    variants_for,
)
from macspec.metal.verify_attention import Attention, Held, Packing
from macspec.metal.walks import MARKOV, SELECTOR, Walk
from macspec.noise import Noise
from macspec.verification import Tree

ROWS = range(2, 34)
CONTEXTS = (33, 300, 1024, 8192, 20_000, 131_072)
F32, BF16 = mx.float32, mx.bfloat16


class Anything:
    """Equal to every result, and made of such."""

    def __getitem__(self, _: object) -> Anything:
        return self

    def split(self) -> Anything:
        return self

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True, params=[False])
def satisfied(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The self-check finds everything right and goes on to its end; nothing is computed."""
    intact = choicechecks._choosing

    def agreeing(*given: Any) -> Any:
        drafted, choose = intact(*given)
        return drafted, lambda x, number, _: choose(x, number, 1)

    for module in (checks, choicechecks):
        monkeypatch.setattr(module, "distance", lambda *_: None)
        monkeypatch.setattr(module, "recorded", Anything)
        monkeypatch.setattr(module, "normal", lambda shape, dtype, seed=0: mx.zeros(shape, dtype))
    monkeypatch.setattr(checks, "checksum", lambda _: "")
    monkeypatch.setattr(choicechecks, "_choosing", agreeing)
    monkeypatch.setattr(choicechecks, "PASSES", 1)
    monkeypatch.setattr(mx, "array_equal", lambda *_: True)
    # An M5, where all kernels are; unless a test says otherwise, with the rows that M1 has more.
    monkeypatch.setattr(matmul, "has_tensor_units", lambda: True)
    monkeypatch.setattr(matmul, "mlx_takes_rows_together", lambda: request.param)
    for kernels, by_mlx, ours in (
        (gated_delta, "by_mlx", gated_delta.gated_delta),
        (mamba2, "row_by_row", lambda *_: (None, None)),
        (walks, "reference", walks.select),
        (walks, "markov_reference", walks.markov_row),
    ):
        monkeypatch.setattr(kernels, by_mlx, ours)


def launch_products(shape: Matmul) -> None:
    matrix = checks.random_matrix(shape)
    variants = [*_of_matmul(shape, False), *_of_matmul(shape, True)]
    for rows in ROWS:
        points = {strict: matmul_rows(rows, strict=strict) for strict in (False, True)}
        for size in ((rows, shape.inputs), (1, rows, shape.inputs)):
            for variant in variants:
                if variant.rows == points[variant.kernel == STRICT]:
                    multiply(variant.kernel, mx.zeros(size, shape.dtype), matrix)


def held(shape: Attention, length: int, width: int) -> Held:
    """Keys or values of a cache."""
    size = (1, shape.heads, length)
    bits, group = shape.packing
    if not bits:
        return mx.zeros((*size, width), shape.dtype)
    scales = mx.zeros((*size, width // group), shape.dtype)
    return mx.zeros((*size, width * bits // 32), mx.uint32), scales, scales


def launch_attention(shape: Attention) -> None:
    for rows in (it for it in ROWS if at_least(it, ATTENTION_ROWS)):
        for length in CONTEXTS:
            verify_attention.verify_attention(
                mx.zeros((1, shape.query_heads, rows, shape.width), shape.dtype),
                held(shape, length, shape.width),
                held(shape, length, shape.value_width),
                sees=verify_attention.causal(rows),
                scale=1.0,
                packing=shape.packing,
            )


def launch_recurrence(shape: GatedDelta | Mamba2) -> None:
    delta = isinstance(shape, GatedDelta)
    for rows in range(1, RECURRENCE_ROWS[-1] + 1):
        for pending in range(1, RECURRENCE_ROWS[-1] + 1):
            if delta:
                some = (checks._gated_delta_rows(it, shape, 1) for it in (pending, rows))
                gated_delta.gated_delta(None, next(some), pending - 1, next(some))
            else:
                given = (checks._ssm_arguments(it, shape, 1) for it in (pending, rows))
                before, own = map(Rows.of, given)
                mamba2.mamba2(None, before, pending - 1, own)


def launch_walk(shape: Walk) -> None:
    tables = mx.zeros((64, shape.rank), shape.dtype), mx.zeros((64, shape.rank), shape.dtype)
    anchor, choices = mx.array([1], mx.uint32), shape.choices
    for rows in range(1, 17):
        if shape.kernel == MARKOV.name:
            places = None if choices == shape.width else mx.zeros((shape.width,), mx.int32)
            cut = tables[0], tables[1][:choices]
            walks.markov_row(cut, mx.zeros((1, choices)), anchor, places, shape.width)
            continue
        parts = mx.zeros((rows, shape.rank)), mx.zeros((rows, choices)), mx.zeros((rows, choices))
        for rule, truncated in CHOICES:
            how = choicechecks.recorded_sampling(rule, truncated)
            noise = None if rule == "greedy" else Noise(1, 1, 1, rows, 64)
            walks.select(how, tables, parts, anchor, noise, keeps_q=rule == "block")


def launch_choices(width: int) -> None:
    for rule, truncated in CHOICES:
        sampling = choicechecks.recorded_sampling(rule, truncated)
        noise = None if rule == "greedy" else Noise(1, 1, 1, 33, width)
        for rows in ROWS:
            logits, drafted = mx.zeros((rows, width)), mx.zeros((rows - 1,), mx.uint32)
            log_q = mx.zeros((rows - 1, width)) if rule == "block" else None
            accept.accept(sampling, logits, drafted, log_q, noise)
            if rule != "block":
                accept.follow(sampling, logits, Tree(drafted, tuple(range(-1, rows - 2))), noise)
        accept.draft_sample(sampling, mx.zeros((1, width)), noise, 0, keeps_q=rule == "block")


def compiled(variants: list[Variant]) -> set[str]:
    """The names of all texts that the self-checks of these launch."""
    with export.recorded() as texts:
        for variant in variants:
            assert checks.check_of(variant).failure() is None, variant
    return set(texts)


@pytest.mark.parametrize("satisfied", [False, True], indirect=True)
def test_what_a_pass_can_need_was_compiled() -> None:
    pair = quantized.pair()
    target, variants = variants_for(pair)
    _, strict = variants_for(pair, strict=True)
    before = compiled([*variants, *strict])
    with export.recorded() as texts:
        for shape in target.matmuls:
            launch_products(shape)
        for attention in target.attentions:
            launch_attention(attention)
        launch_choices(pair.vocabulary)
    assert len(texts) >= 40
    assert not set(texts) - before


def asked(shape: Any) -> Iterator[Variant]:
    """The variants of a shape, as ``variants_for`` asks for them."""
    if isinstance(shape, Matmul):
        yield from (*_of_matmul(shape, False), *_of_matmul(shape, True))
    elif isinstance(shape, Attention):
        for rows in ATTENTION_ROWS:
            yield from (Variant(ATTENTION, replace(shape, length=it), rows) for it in LENGTHS)
    elif isinstance(shape, Walk):
        yield Variant(shape.kernel, shape, WALK_ROWS)
    else:
        kernel = gated_delta if isinstance(shape, GatedDelta) else mamba2
        yield from (Variant(kernel.KERNEL.name, shape, rows) for rows in RECURRENCE_ROWS)


SHAPES = (
    Matmul(4, 32, 512, 67, BF16, "mxfp4"),
    Matmul(4, 16, 512, 2051, F32, "nvfp4"),
    Attention(4, 2, 64, 64, F32, packing=Packing(4, 64)),
    GatedDelta(4, 8, 64, 16, False, BF16),
    Mamba2(8, 2, 8, 32, BF16, (F32, BF16)),
    Walk(SELECTOR.name, 16, 8, 64, F32),
    Walk(MARKOV.name, 40, 8, 64, F32),
)
MORE = (
    *(Matmul(8, 32, 8192, it, mx.float16, "mxfp8") for it in (64, 2048)),
    *(Attention(it, 2, 128, 128, F32) for it in (2, 16, 12, 14)),
    *(Attention(16, 2, it, it, BF16, packing=Packing(2, 32)) for it in (96, 256)),
    Attention(8, 8, 64, 128, F32),
    GatedDelta(16, 32, 128, 128, True, F32),
    Walk(SELECTOR.name, 3, 8, 64, BF16),
    Walk(SELECTOR.name, 32, 8, 64, F32),
    Walk(MARKOV.name, 64, 8, 64, BF16),
)


@pytest.mark.parametrize(
    "shape", [*SHAPES, *(pytest.param(it, marks=pytest.mark.slow) for it in MORE)], ids=str
)
def test_what_a_shape_can_need_was_compiled(shape: Any) -> None:
    before = compiled(list(asked(shape)))
    launch = {Matmul: launch_products, Attention: launch_attention, Walk: launch_walk}
    with export.recorded() as texts:
        launch.get(type(shape), launch_recurrence)(shape)
    assert texts
    assert not set(texts) - before


def test_no_two_variants_share_a_name() -> None:
    """By which outcomes are kept."""
    widths = ((64, 128), (128, 64))
    every = [
        *(Attention(4, 2, *it, F32) for it in widths),
        *(GatedDelta(4, 8, *it, False, F32) for it in widths),
        *SHAPES,
        *MORE,
    ]
    variants = [variant for shape in every for variant in asked(shape)]
    assert len({str(it) for it in variants}) == len(variants)
