"""How a variant is tried: is it right, and what does a call cost beside what MLX would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from macspec.noise import Noise
from macspec.verification import rule_named

from . import accept, affine, draft_sample, expected, verify_attention, verify_qmm, verify_qmv
from .affine import Matrix
from .variants import ACCEPT, PRODUCT_ROWS, QMM, STRICT, Attention, Choice, Product, Variant

TOLERANCE = {mx.float32: 2e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}
"""Largest error, in units of the largest value, between kernel and reference: products and
attention are added in float32 on both sides, so it is some roundings of the type."""

COMPARED = 2048
"""Outputs at either end of a matrix that are compared with the reference, which needs all of its
weights in float32."""

PASSES = 4
"""Random passes on which choices must be equal to the reference's."""


class Trial(Protocol):
    """One variant, ready to run on the device."""

    start: mx.array
    """What a chain of steps begins with."""

    def wrong(self) -> str | None:
        """What is wrong with the kernel's results, in half a sentence; None if they are right."""
        ...

    def step(self, x: mx.array, *, ours: bool) -> mx.array:
        """One call by macspec's kernel or by what MLX does instead; its result is the next ``x``.

        Values stay as they are, so that a chain of steps is as many calls, one after the other.
        """
        ...


def trial(asked: Variant, matrices: Mapping[Product, Matrix]) -> Trial:
    """The trial of a variant, with a matrix of the model where it takes one."""
    if isinstance(asked.shape, Product):
        return _Product(asked, matrices[asked.shape])
    if isinstance(asked.shape, Attention):
        return _Attention(asked, asked.shape)
    return _Choice(asked, asked.shape)


def multiply(kernel: str, x: mx.array, matrix: Matrix) -> mx.array:
    """``x`` [rows, K] times a matrix, by the kernel of that name."""
    if kernel == QMM:
        return verify_qmm.verify_qmm(x, matrix)
    return verify_qmv.verify_qmv(x, matrix, strict=kernel == STRICT)


def normal(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    """Normal variates that do not depend on the device."""
    random = np.random.default_rng([*shape, seed])
    return mx.array(random.standard_normal(shape, np.float32)).astype(dtype)


class _Product:
    def __init__(self, asked: Variant, matrix: Matrix) -> None:
        self._kernel, self._matrix = asked.kernel, matrix
        self._rows, self._dtype = asked.rows, matrix.dtype
        self.start = normal((asked.rows, matrix.inputs), matrix.dtype)

    def wrong(self) -> str | None:
        matrix, dtype = self._matrix, self._dtype
        fixed = expected.matrix(matrix.bits, matrix.group_size, dtype)
        y = multiply(self._kernel, expected.inputs(self._rows, dtype), fixed)
        key = expected.product_key(matrix.bits, matrix.group_size, dtype)
        sums = expected.recorded()["products"][key].split()
        if expected.checksum(y) != sums[PRODUCT_ROWS.index(self._rows)]:
            return "other bits than recorded"
        y = multiply(self._kernel, self.start, matrix)
        if self._kernel == STRICT:
            if not mx.array_equal(y, verify_qmv.one_by_one(self.start, matrix)):
                return "other bits than MLX's product of one row"
            return None
        for begin in {0, max(matrix.outputs - COMPARED, 0)}:
            some = slice(begin, begin + COMPARED)
            part = replace(
                matrix, w=matrix.w[some], scales=matrix.scales[some], biases=matrix.biases[some]
            )
            if why := _apart(y[:, some], affine.reference(self.start, part)):
                return why
        return None

    def step(self, x: mx.array, *, ours: bool) -> mx.array:
        matrix = self._matrix
        if ours:
            y = multiply(self._kernel, x, matrix)
        else:
            y = mx.quantized_matmul(
                x,
                matrix.w,
                matrix.scales,
                matrix.biases,
                group_size=matrix.group_size,
                bits=matrix.bits,
            )
        return _then(x, y[:, :1])


class _Attention:
    def __init__(self, asked: Variant, shape: Attention) -> None:
        rows = asked.rows
        self.start = normal((1, shape.query_heads, rows, shape.width), shape.dtype)
        self._keys = normal((1, shape.heads, shape.length, shape.width), shape.dtype, 1)
        self._values = normal((1, shape.heads, shape.length, shape.value_width), shape.dtype, 2)
        self._scale = float(shape.width**-0.5)
        # Half of a pass is a tree: every row sees the first and itself.
        self._tree = tuple(1 | 1 << row for row in range(rows))

    def wrong(self) -> str | None:
        for sees in (verify_attention.causal(self.start.shape[2]), self._tree):
            how: dict[str, Any] = {"sees": sees, "scale": self._scale}
            for length in (self._keys.shape[2], 100):
                arrays = self.start, self._keys[:, :, :length], self._values[:, :, :length]
                out = verify_attention.verify_attention(*arrays, **how)
                if why := _apart(out, verify_attention.reference(*arrays, **how)):
                    return why
        return None

    def step(self, x: mx.array, *, ours: bool) -> mx.array:
        if ours:
            out = verify_attention.verify_attention(
                x,
                self._keys,
                self._values,
                sees=verify_attention.causal(x.shape[2]),
                scale=self._scale,
            )
        else:
            out = mx.fast.scaled_dot_product_attention(
                x, self._keys, self._values, scale=self._scale, mask="causal"
            )
        return _then(x, out[..., :1])


class _Choice:
    def __init__(self, asked: Variant, shape: Choice) -> None:
        self._shape, self._accept = shape, asked.kernel == ACCEPT
        self._rows = asked.rows
        self._sampling = expected.sampling(shape.rule, shape.truncated)
        self._rule = rule_named("block" if shape.rule == "block" else "keyed")
        self._logits = normal((asked.rows, shape.width), shape.dtype) * 3
        likely = self._logits[: max(asked.rows - 1, 1)].astype(mx.float32)
        self._log_q = None
        if shape.rule == "block" and self._accept:
            likely = self._log_q = self._sampling.scores(likely * 0.9)
        self._drafted = mx.argmax(likely, axis=-1).astype(mx.uint32)
        self.start = self._drafted

    def wrong(self) -> str | None:
        shape = self._shape
        run: Any = accept.accept if self._accept else draft_sample.draft_sample
        record = expected.accepted if self._accept else expected.drafted
        stored = expected.recorded()["accept" if self._accept else "draft_sample"]
        found: Any = record(run, shape.rule, shape.truncated, shape.dtype)
        if found != stored[expected.choice_key(shape.rule, shape.truncated)]:
            return "other choices than recorded"
        for number in range(PASSES):
            if self._chosen(number, ours=True) != self._chosen(number, ours=False):
                return "other choices than the reference"
        return None

    def step(self, x: mx.array, *, ours: bool) -> mx.array:
        if self._accept:
            outcome, token = self._accepted(x, 0, ours=ours)
            return x + (outcome.astype(mx.uint32) + token) * 0
        logits = self._logits + (x[:1] * 0).astype(self._logits.dtype)
        token, _ = self._drawn(logits, 0, ours=ours)
        return token.reshape(1)

    def _chosen(self, number: int, *, ours: bool) -> list[int]:
        if self._accept:
            results: Any = self._accepted(self._drafted, number, ours=ours)
        else:
            results = self._drawn(self._logits, number, ours=ours)[:1]
        chosen: Any = mx.concatenate(
            [result.reshape(1).astype(mx.int32) for result in results]
        ).tolist()
        return list(chosen)

    def _noise(self, number: int) -> Noise | None:
        if self._shape.rule == "greedy":
            return None
        return Noise(expected.SEED, number, 10 * number, self._rows, self._shape.width)

    def _accepted(self, drafted: mx.array, number: int, *, ours: bool) -> tuple[mx.array, mx.array]:
        noise = self._noise(number)
        if ours:
            verdict = accept.accept(self._sampling, self._logits, drafted, self._log_q, noise)
        else:
            scores = self._sampling.scores(self._logits)
            verdict = self._rule.accept(scores, drafted, self._log_q, noise)
        return verdict.accepted, verdict.token.astype(mx.uint32)

    def _drawn(
        self, logits: mx.array, number: int, *, ours: bool
    ) -> tuple[mx.array, mx.array | None]:
        noise, keeps_q = self._noise(number), self._shape.rule == "block"
        if ours:
            return draft_sample.draft_sample(self._sampling, logits, noise, 0, keeps_q=keeps_q)
        scores = self._sampling.scores(logits)
        drawn = scores if noise is None else self._rule.draft_noise(noise)
        assert drawn is not None
        if noise is not None:
            drawn = scores + drawn[:1]
        return mx.argmax(drawn, axis=-1).astype(mx.uint32), scores


def _then(x: mx.array, y: mx.array) -> mx.array:
    """``x``, once ``y``, which can be broadcast to it, is there."""
    return x + (y * 0).astype(x.dtype)


def _apart(found: mx.array, right: mx.array) -> str | None:
    """How far two results are apart, if that is too far."""
    difference = mx.max(mx.abs(found.astype(mx.float32) - right.astype(mx.float32)))
    largest: Any = mx.max(mx.abs(right.astype(mx.float32))).item()
    error: Any = difference.item()
    # Not a number is not right either.
    if error <= TOLERANCE[right.dtype] * largest:
        return None
    return f"off by {error / (largest or 1):.1e} of the largest value"
