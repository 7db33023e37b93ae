"""In plain MLX what mlx-lm computes only with Metal kernels; two models cannot do without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import mlx.core as mx
from mlx_lm.models import bitlinear_layers, muse_spark


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Where there is no Metal, the models inside run without their kernels."""
    if mx.metal.is_available():
        yield
        return
    with (
        mock.patch.object(bitlinear_layers, "_bitlinear_kernel", bitlinear),
        mock.patch.multiple(
            muse_spark,
            expert_routing=expert_routing,
            norm_add_norm=norm_add_norm,
            post_expert_norm_combine=post_expert_norm_combine,
            pre_norm=pre_norm,
            qk_norm=qk_norm,
            qk_norm_rope=qk_norm_rope,
            rms_norm_sigmoid_gate=rms_norm_sigmoid_gate,
        ),
    ):
        yield


def bitlinear(inputs: Any, template: Any, **_: Any) -> list[mx.array]:
    """Each byte holds the ternary weights of four rows, a quarter of the rows apart."""
    x, packed, scale = inputs
    parts = [(packed >> (2 * n) & 3).astype(x.dtype) - 1 for n in range(4)]
    inverted = dict(template)["invert_weight_scales"]
    y = x @ mx.concatenate(parts).T
    return [y / scale if inverted else y * scale]


def normed(x: mx.array, eps: float, weight: mx.array | None = None) -> mx.array:
    return mx.fast.rms_norm(x, weight, eps)


def qk_norm(
    qkvg: mx.array, *, n_heads: int, n_kv_heads: int, head_dim: int, eps: float, query_scale: float
) -> list[mx.array]:
    q, k, _ = mx.split(qkvg, [n_heads * head_dim, (n_heads + n_kv_heads) * head_dim], axis=-1)
    q, k = (normed(mx.unflatten(it, -1, (-1, head_dim)), eps) for it in (q, k))
    return [q * query_scale, k]


def qk_norm_rope(qkvg: mx.array, *, rope_base: float, offset: int, **rest: Any) -> list[mx.array]:
    rotary = {"traditional": True, "base": rope_base, "scale": 1.0, "offset": offset}
    return [
        mx.fast.rope(it.transpose(0, 2, 1, 3), rest["head_dim"], **rotary).transpose(0, 2, 1, 3)
        for it in qk_norm(qkvg, **rest)
    ]


def rms_norm_sigmoid_gate(x: mx.array, gate: mx.array, *, eps: float) -> mx.array:
    return normed(x, eps).transpose(0, 2, 1, 3).flatten(2) * mx.sigmoid(gate)


def norm_add_norm(
    branch: mx.array,
    stream: mx.array,
    *,
    alpha: mx.array,
    beta: mx.array,
    post_weight: mx.array | None,
    post_eps: float,
    next_norm: Any,
) -> tuple[mx.array, mx.array | None]:
    branch = branch if post_weight is None else branch * post_weight
    stream = alpha * stream + beta * normed(branch, post_eps)
    return stream, None if next_norm is None else pre_norm(stream, next_norm)


def pre_norm(stream: mx.array, norm: Any, dtype: Any = None) -> mx.array:
    return normed(stream, norm.eps, norm.weight)


def expert_routing(
    logits: mx.array,
    expert_bias: mx.array,
    *,
    top_k: int,
    multiplier: float,
    score_eps: float,
    route_scale: float,
) -> list[mx.array]:
    scores = mx.sigmoid(logits * multiplier)
    chosen = mx.argsort(-(scores + expert_bias), axis=-1)[..., :top_k]
    weights = mx.take_along_axis(scores, chosen, axis=-1)
    total = weights.sum(axis=-1, keepdims=True) + score_eps
    return [chosen.astype(mx.uint32), weights / total * route_scale]


def post_expert_norm_combine(
    experts: mx.array, weights: mx.array, *, norm_weight: mx.array, eps: float
) -> mx.array:
    return (normed(experts * norm_weight, eps) * weights[..., None]).sum(axis=-2)
