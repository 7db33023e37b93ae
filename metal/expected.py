"""Bits that the kernels must give on every machine, recorded from the portable references.

For products the numbers are small multiples of a power of two, so that every order of adding gives
the same sum; for choices the best two scores lie further apart than rounding reaches.

    python -m macspec.metal.expected    # prints expected.json anew
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from macspec.noise import DRAFT, TARGET, Noise, bits
from macspec.sampling import Sampling

from . import accept, affine, draft_sample
from .affine import Matrix
from .variants import PRODUCT_ROWS, name_of

OUTPUTS, INPUTS = 2048, 512
WIDTH, DEPTH = 1000, 4
SEED = 20
CHOICES = (
    ("greedy", False),
    ("drawn", False),
    ("drawn", True),
    ("block", False),
    ("block", True),
)
"""Rule, and whether top-k and top-p cut."""
Accept = Callable[..., Any]
Sample = Callable[..., Any]
Multiply = Callable[[mx.array, Matrix], mx.array]


def hashed(shape: tuple[int, ...], seed: int) -> mx.array:
    """uint32 from the noise's hash, the same everywhere."""
    count = 1
    for size in shape:
        count *= size
    keys = mx.array([[seed, seed + 1]], mx.uint32)
    drawn: mx.array = bits(keys, mx.arange(count, dtype=mx.uint32))
    return drawn.reshape(shape)


def matrix(bits: int, group_size: int, dtype: mx.Dtype) -> Matrix:
    """A matrix [2048, 512] of multiples of 2^(1 - bits) from -2 to below 2."""
    packed = hashed((OUTPUTS, INPUTS * bits // 32), bits)
    wide = hashed((OUTPUTS, INPUTS // group_size), 5) % mx.array(2, mx.uint32) == 0
    scales = mx.where(wide, 2.0 ** (2 - bits), 2.0 ** (1 - bits)).astype(dtype)
    biases = mx.where(wide, -2.0, -1.0).astype(dtype)
    return Matrix(packed, scales, biases, group_size, bits)


def inputs(rows: int, dtype: mx.Dtype) -> mx.array:
    """[rows, 512] of -2 to 2."""
    most = hashed((PRODUCT_ROWS[-1], INPUTS), 7)[:rows] % mx.array(5, mx.uint32)
    return (most.astype(mx.float32) - 2).astype(dtype)


def checksum(array: mx.array) -> str:
    """Of an array's bits."""
    return f"{zlib.crc32(np.array(array.view(mx.uint8)).tobytes()):08x}"


def logits(dtype: mx.Dtype) -> mx.array:
    """[5, 1000] of multiples of 1/16 from 0 to below 8, with ties, and the same in every type."""
    steps = hashed((DEPTH + 1, WIDTH), 11) % mx.array(128, mx.uint32)
    return (steps.astype(mx.float32) / 16).astype(dtype)


def sampling(rule: str, truncated: bool) -> Sampling:
    """How the recorded choices are made."""
    how = Sampling(temperature=0 if rule == "greedy" else 0.8)
    return replace(how, top_k=40, top_p=0.9) if truncated else how


def noise(rule: str, draw: int = 3) -> Noise | None:
    """Of a pass whose choices are recorded; every ``draw`` has other numbers under block."""
    return None if rule == "greedy" else Noise(SEED, draw, 100 + draw, DEPTH + 1, WIDTH)


def accepted(run: Accept, rule: str, truncated: bool, dtype: mx.Dtype) -> list[list[int]]:
    """How many drafted tokens stand, and what follows, in five passes.

    Under match none to all of the drafted tokens are right; under block they are draws.
    """
    how, rows = sampling(rule, truncated), logits(dtype)
    outcomes = []
    for draw in range(DEPTH + 1):
        drawn = noise(rule, draw)
        log_q = None
        if rule == "block":
            assert drawn is not None
            log_q = how.scores(logits(mx.float32)[:DEPTH] * 0.9, None)
            drafted = mx.argmax(log_q + drawn.gumbel(DRAFT)[:DEPTH], axis=-1)
        else:
            scores = how.scores(logits(mx.float32), None)
            right = scores if drawn is None else scores + drawn.gumbel(TARGET)
            drafted = mx.argmax(right, axis=-1)[:DEPTH]
            drafted = mx.where(mx.arange(DEPTH) < draw, drafted, (drafted + 1) % WIDTH)
        verdict = run(how, rows, drafted.astype(mx.uint32), log_q, drawn)
        outcomes.append([int(verdict.accepted.item()), int(verdict.token.item())])
    return outcomes


def drafted(run: Sample, rule: str, truncated: bool, dtype: mx.Dtype) -> list[int]:
    """The tokens that a draft model draws at each step."""
    how, drawn, rows = sampling(rule, truncated), noise(rule), logits(dtype)
    return [
        int(run(how, rows[step : step + 1], drawn, step, keeps_q=rule == "block")[0].item())
        for step in range(DEPTH)
    ]


def product_key(bits: int, group_size: int, dtype: mx.Dtype) -> str:
    """Of a recorded product."""
    return f"{bits} {group_size} {name_of(dtype)}"


def choice_key(rule: str, truncated: bool) -> str:
    """Of recorded choices, which are the same in every type."""
    return f"{rule}{' truncated' * truncated}"


def compute() -> dict[str, dict[str, Any]]:
    """All of ``expected.json``, by the portable references."""
    products = {}
    for size in affine.BITS:
        for group_size in affine.GROUP_SIZES:
            for dtype in affine.TYPES:
                whole = affine.reference(
                    inputs(PRODUCT_ROWS[-1], dtype), matrix(size, group_size, dtype)
                )
                products[product_key(size, group_size, dtype)] = " ".join(
                    checksum(whole[:rows] + 0) for rows in PRODUCT_ROWS
                )
    accepts, samples = {}, {}
    for rule, truncated in CHOICES:
        key = choice_key(rule, truncated)
        accepts[key] = accepted(accept.reference, rule, truncated, mx.float32)
        samples[key] = drafted(draft_sample.reference, rule, truncated, mx.float32)
    return {"products": products, "accept": accepts, "draft_sample": samples}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """What ``expected.json`` holds."""
    stored: dict[str, dict[str, Any]] = json.loads(
        (Path(__file__).parent / "expected.json").read_text(encoding="utf-8")
    )
    return stored


if __name__ == "__main__":
    lines = json.dumps(compute(), indent=1)
    print(re.sub(r"\[\s+(\d[\d,\s]*\d)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", lines))
