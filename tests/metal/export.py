"""Write every kernel text that macspec can launch to a folder, as files for Apple's compiler.

    python tests/metal/export.py OUT
    for file in OUT/*.metal; do xcrun -sdk macosx metal -c "$file" -o /dev/null; done

Runs on every system. A file holds MLX's own headers, a kernel's, and some of its texts.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
from harness import launching
from harness.headers import flattened
from harness.text import export

from macspec import layercaches
from macspec.metal import accept, gated_delta, mamba2, matmul, verify_attention, walks
from macspec.metal.choicechecks import ACCEPT_TEXTS
from macspec.metal.kernel import Kernel, Launch
from macspec.metal.mamba2 import Rows
from macspec.metal.matmul import Matrix
from macspec.noise import Noise
from macspec.sampling import Sampling
from macspec.verification import Tree

TYPES = (mx.float32, mx.float16, mx.bfloat16)
VOCABULARY = 1024
"""Any number from 512 on gives the same texts."""
TOGETHER = 100
"""Texts of a file."""
DELTA_NETS = (
    *(((8, 16, width, 64), by_column) for width in (32, 64, 96, 128, 256) for by_column in (0, 1)),
    *(((16, heads, 128, 128), False) for heads in (16, 32, 48, 64)),
    ((32, 32, 128, 128), True),
)
"""Key heads, heads, their sizes, and whether gates are by column: every size, and the numbers of
heads of Qwen3-Next, Qwen3.5 and Kimi Linear."""


def launch_all() -> None:
    """Call the Python face of every kernel in every way that leads to another text."""
    for dtype in TYPES:
        for bits, group_size in itertools.product(matmul.BITS, matmul.GROUP_SIZES):
            _multiply(dtype, bits, group_size)
        for mode, sizes in matmul.FLOATS.items():
            _multiply(dtype, *sizes, mode)
        _attend(dtype)
        _recur(dtype)
        _choose(dtype)
        _walk(dtype)


def _multiply(dtype: mx.Dtype, bits: int, group_size: int, mode: str = matmul.AFFINE) -> None:
    def operands(rows: int, outputs: int, inputs: int) -> tuple[mx.array, Matrix]:
        packed = mx.zeros((outputs, inputs * bits // 32), mx.uint32)
        affine = mode == matmul.AFFINE
        scales = mx.zeros((outputs, inputs // group_size), dtype if affine else mx.uint8)
        arrays = packed, scales, scales if affine else None
        return mx.zeros((rows, inputs), dtype), Matrix(*arrays, group_size, bits, mode)

    for rows in range(2, matmul.QMV_ROWS + 1):
        # Whole and partial tiles of a short and a tall matrix.
        for outputs in (64, 61, matmul.WIDE, matmul.WIDE + 3):
            matmul.multiply(matmul.QMV.name, *operands(rows, outputs, 512))
        # MLX's fast one-row kernel and its general one.
        strict = itertools.product((64, 61), (512, 384)) if mode == matmul.AFFINE else ()
        for outputs, inputs in strict:
            matmul.multiply(matmul.STRICT, *operands(rows, outputs, inputs))
    for rows in range(8, matmul.QMM_ROWS + 1, 8):
        # Whole and split along the inputs, each with whole and partial tiles.
        for outputs in (4096, 4095, 32, 31):
            matmul.multiply(matmul.QMM.name, *operands(rows, outputs, 8192))
            if rows % 16 == 0 and dtype in matmul.TENSOR_TYPES:
                matmul.multiply(matmul.QMT.name, *operands(rows, outputs, 8192))


def _attend(dtype: mx.Dtype) -> None:
    widths = itertools.product(verify_attention.WIDTHS, repeat=2)
    # Whole; in stretches; keys divided among four simdgroups, or two.
    cases = itertools.product((2, 8), ((2, 100), (2, 1024), (2, 65_536), (3, 65_536)))
    for (width, value_width), (rows, (group, length)) in itertools.product(widths, cases):
        verify_attention.verify_attention(
            mx.zeros((1, group, rows, width), dtype),
            mx.zeros((1, 1, length, width), dtype),
            mx.zeros((1, 1, length, value_width), dtype),
            sees=verify_attention.causal(rows),
            scale=1.0,
        )
    cases = itertools.product((2, 8), ((2, 100), (2, 1024), (2, 65_536), (3, 65_536)))
    packings = itertools.product(verify_attention.WIDTHS, verify_attention.CACHE_BITS)
    for (width, bits), (rows, (group, length)) in itertools.product(packings, cases):
        if size := layercaches.group_size(width):
            words = mx.zeros((1, 1, length, width * bits // 32), mx.uint32)
            scales = mx.zeros((1, 1, length, width // size), dtype)
            verify_attention.verify_attention(
                mx.zeros((1, group, rows, width), dtype),
                (words, scales, scales),
                (words, scales, scales),
                sees=verify_attention.causal(rows),
                scale=1.0,
                packing=verify_attention.Packing(bits, size),
            )


def _recur(dtype: mx.Dtype) -> None:
    types = itertools.product(mamba2.STATES, {mx.float32, dtype}, {mx.float32, dtype})
    for state, a_log, d in types:
        b = mx.zeros((1, 1, 1, state), dtype)
        x, dt = mx.zeros((1, 1, 8, 64), dtype), mx.zeros((1, 1, 8))
        rows = Rows(x, b, b, dt, mx.zeros((8,), a_log), mx.zeros((8,), d))
        mamba2.mamba2(None, rows, 0, rows)
    for (key_heads, heads, width, value_width), by_column in DELTA_NETS:
        k = mx.zeros((1, 1, key_heads, width), dtype)
        v = mx.zeros((1, 1, heads, value_width), dtype)
        g = mx.zeros((1, 1, heads, width) if by_column else (1, 1, heads))
        delta = gated_delta.Rows(k, k, v, g, mx.zeros((1, 1, heads), dtype))
        gated_delta.gated_delta(None, delta, 0, delta)


def _choose(dtype: mx.Dtype) -> None:
    for sampling in (Sampling(temperature=0), Sampling(), Sampling(top_k=4)):
        greedy = sampling.greedy
        for rows in ACCEPT_TEXTS:
            depth = rows - 1
            noise = None if greedy else Noise(1, 1, 1, rows, VOCABULARY)
            logits = mx.zeros((rows, VOCABULARY), dtype)
            drafted = mx.zeros((depth,), mx.uint32)
            tree = Tree(drafted, tuple(range(-1, depth - 1)))
            accept.follow(sampling, logits, tree, noise)
            for log_q in (None, mx.zeros((depth, VOCABULARY))):
                accept.accept(sampling, logits, drafted, log_q, noise)
        noise = None if greedy else Noise(1, 1, 1, 1, VOCABULARY)
        for keeps_q in (False, True):
            logits = mx.zeros((1, VOCABULARY), dtype)
            accept.draft_sample(sampling, logits, noise, 0, keeps_q=keeps_q)


def _walk(dtype: mx.Dtype) -> None:
    tables, anchor = (mx.zeros((64, 64), dtype),) * 2, mx.zeros((1,), mx.uint32)
    # Both sides of 8 elements: one row of few candidates, and of many.
    for count in (4, 16, 32):
        parts = mx.zeros((1, 64), dtype), mx.zeros((1, count), mx.uint32), mx.zeros((1, count))
        for sampling, keeps_q in ((Sampling(temperature=0), False), (Sampling(), True)):
            noise = None if sampling.greedy else Noise(1, 1, 1, 1, VOCABULARY)
            walks.select(sampling, tables, parts, anchor, noise, keeps_q=keeps_q)
        walks.select(Sampling(), tables, parts, anchor, Noise(1, 1, 1, 1, 64), keeps_q=False)
    for places in (None, mx.zeros((64,), mx.int32)):
        walks.markov_row(tables, mx.zeros((1, 64)), anchor, places, 64)


@contextmanager
def recorded() -> Iterator[dict[str, tuple[str, str]]]:
    """Kernel and text of each launch inside, by the name that MLX gives it; nothing runs."""
    texts: dict[str, tuple[str, str]] = {}

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        found = export(lambda *inputs: intact(kernel, inputs, launch), list(arrays), "")
        texts[found.text.name] = kernel.name, found.source
        return [
            mx.zeros(shape, dtype)
            for shape, dtype in zip(launch.shapes, launch.dtypes, strict=True)
        ]

    intact: Any = Kernel.__call__
    with launching(call):
        yield texts


def files(texts: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The contents of every file by its name."""
    found: dict[tuple[str, str], list[str]] = {}
    for kernel, text in texts.values():
        header, mark, function = text.partition("[[kernel]]")
        found.setdefault((kernel, header), []).append(mark + function)
    preamble = flattened(shim=False)
    made: dict[str, str] = {}
    for (kernel, header), functions in found.items():
        for begin in range(0, len(functions), TOGETHER):
            some = functions[begin : begin + TOGETHER]
            made[f"{kernel}-{begin // TOGETHER + 1}.metal"] = "".join([preamble, header, *some])
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with recorded() as texts:
        launch_all()
    made = files(texts)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} files in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
