"""Every text that a pass of 2 to 33 rows can need was compiled by the self-check before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import export
import mlx.core as mx
import pytest
import quantized

from macspec.metal import accept, checks, verify_attention
from macspec.metal.matmul import QMM, QMV, Matmul, multiply
from macspec.metal.variants import (
    ATTENTION_ROWS,
    CHOICES,
    MATMUL_ROWS,
    QMM_FROM,
    Workload,
    at_least,
    variants_for,
)
from macspec.metal.verify_attention import Attention
from macspec.noise import Noise
from macspec.verification import Tree

ROWS = range(2, 34)
CONTEXTS = (33, 300, 1024, 8192, 20_000, 131_072)


class Anything:
    """Equal to every result, and made of such."""

    def __getitem__(self, _: object) -> Anything:
        return self

    def split(self) -> Anything:
        return self

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def satisfied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check finds everything right and goes on to its end; nothing is computed."""
    intact = checks._choosing

    def agreeing(*given: Any) -> Any:
        drafted, choose = intact(*given)
        return drafted, lambda x, number, _: choose(x, number, 1)

    monkeypatch.setattr(checks, "_choosing", agreeing)
    monkeypatch.setattr(checks, "_distance", lambda *_: None)
    monkeypatch.setattr(checks, "checksum", lambda _: "")
    monkeypatch.setattr(checks, "recorded", Anything)
    monkeypatch.setattr(checks, "PASSES", 1)
    monkeypatch.setattr(checks, "_normal", lambda shape, dtype, seed=0: mx.zeros(shape, dtype))


def launch_products(shape: Matmul) -> None:
    matrix = checks.random_matrix(shape)
    for rows in ROWS:
        point = at_least(rows, MATMUL_ROWS)
        for x in (mx.zeros((rows, shape.inputs)), mx.zeros((1, rows, shape.inputs))):
            if point is not None and point <= 8:
                multiply(QMV.name, x, matrix)
            if point is not None and point >= QMM_FROM:
                multiply(QMM.name, x, matrix)


def launch_attention(shape: Attention) -> None:
    for rows in (it for it in ROWS if at_least(it, ATTENTION_ROWS)):
        for length in CONTEXTS:
            verify_attention.verify_attention(
                mx.zeros((1, shape.query_heads, rows, shape.width)),
                mx.zeros((1, shape.heads, length, shape.width)),
                mx.zeros((1, shape.heads, length, shape.value_width)),
                sees=verify_attention.causal(rows),
                scale=1.0,
            )


def launch_choices(width: int) -> None:
    for rule, truncated in CHOICES:
        sampling = checks.recorded_sampling(rule, truncated)
        noise = None if rule == "greedy" else Noise(1, 1, 1, 33, width)
        for rows in ROWS:
            logits, drafted = mx.zeros((rows, width)), mx.zeros((rows - 1,), mx.uint32)
            log_q = mx.zeros((rows - 1, width)) if rule == "block" else None
            accept.accept(sampling, logits, drafted, log_q, noise)
            if rule != "block":
                accept.follow(sampling, logits, Tree(drafted, tuple(range(-1, rows - 2))), noise)
        accept.draft_sample(sampling, mx.zeros((1, width)), noise, 0, keeps_q=rule == "block")


def reached(target: Workload, width: int) -> set[str]:
    with export.recorded() as texts:
        for shape in target.matmuls:
            launch_products(shape)
        for attention in target.attentions:
            launch_attention(attention)
        launch_choices(width)
    return set(texts)


@pytest.mark.usefixtures("satisfied")
def test_what_a_pass_can_need_was_compiled() -> None:
    pair = quantized.pair()
    target, variants = variants_for(pair)
    with export.recorded() as compiled:
        for variant in variants:
            assert checks.check_of(variant).failure() is None, variant
    found = reached(target, pair.vocabulary)
    assert len(found) >= 40
    assert not found - set(compiled)


@pytest.mark.slow
@pytest.mark.usefixtures("satisfied")
@pytest.mark.parametrize(("query_heads", "heads"), [(8, 8), (16, 2), (24, 4), (28, 4)])
def test_what_other_heads_can_need_was_compiled(query_heads: int, heads: int) -> None:
    shape = Attention(query_heads, heads, 128, 128, mx.float32)
    asked = variants_for(quantized.pair())[1]
    points = {(it.rows, it.shape.length) for it in asked if isinstance(it.shape, Attention)}
    with export.recorded() as compiled:
        for rows, length in points:
            variant = replace(asked[0], kernel="verify_attention", rows=rows)
            variant = replace(variant, shape=replace(shape, length=length))
            assert checks.check_of(variant).failure() is None
    with export.recorded() as found:
        launch_attention(shape)
    assert not set(found) - set(compiled)
