"""Record what the kernels must give on every machine, by the portable references.

python tests/metal/expected.py > metal/expected.json
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import mlx.core as mx
import references

from macspec.metal import gated_delta, mamba2, matmul, recorded, walks
from macspec.metal.gated_delta import GatedDelta
from macspec.metal.kernel import TYPES
from macspec.metal.mamba2 import Mamba2
from macspec.metal.variants import CHOICES, MATMUL_ROWS, RECURRENCE_ROWS


def compute() -> dict[str, dict[str, Any]]:
    """All of ``expected.json``."""
    products = {}
    affine = itertools.product(matmul.BITS, matmul.GROUP_SIZES)
    floats = ((*sizes, mode) for mode, sizes in matmul.FLOATS.items())
    for (bits, group_size, *mode), dtype in itertools.product((*affine, *floats), TYPES):
        inputs = recorded.recorded_inputs(MATMUL_ROWS[-1], dtype)
        matrix = recorded.recorded_matrix(bits, group_size, dtype, *mode)
        whole = matmul.reference(inputs, matrix)
        products[recorded.matmul_key(bits, group_size, dtype, *mode)] = " ".join(
            recorded.checksum(whole[:rows] + 0) for rows in MATMUL_ROWS
        )
    accepts, samples, selected = {}, {}, {}
    for rule, truncated in CHOICES:
        key = recorded.choice_key(rule, truncated)
        accepts[key] = recorded.verdicts(references.accept, rule, truncated, mx.float32)
        samples[key] = recorded.drafts(references.draft_sample, rule, truncated, mx.float32)
        selected[key] = recorded.selections(walks.reference, rule, truncated, mx.float32)
    scans = {}
    for state, dtype in itertools.product(mamba2.STATES, TYPES):
        shape = Mamba2(8, 2, 16, state, dtype, (mx.float32, dtype))
        sums = (recorded.scanned(mamba2.reference, shape, rows) for rows in RECURRENCE_ROWS)
        scans[recorded.mamba2_key(shape)] = " ".join(sums)
    deltas = {}
    for by_column, dtype in itertools.product((False, True), TYPES):
        delta = GatedDelta(1, 2, 64, 16, by_column, dtype)
        key = recorded.gated_delta_key(delta)
        deltas[key] = recorded.advanced(gated_delta.reference, delta)
    return {
        "products": products,
        "mamba2": scans,
        "gated_delta": deltas,
        "accept": accepts,
        "draft_sample": samples,
        "selector_walk": selected,
        "markov_row": {"sums": recorded.markov_sums(walks.markov_reference, mx.float32)},
    }


if __name__ == "__main__":
    lines = json.dumps(compute(), indent=1)
    print(re.sub(r"\[\s+(\d[\d,\s]*\d)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", lines))
