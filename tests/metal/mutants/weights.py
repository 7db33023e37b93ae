"""What may go wrong in weights.metal where weights are small floats, by one edit each."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
from harness import Case, Mutant
from matrices import Matmul

from . import verify_qmv

MUTANTS = (
    Mutant("the sign of the next", "(word & sign << at)", "(word & sign)"),
    Mutant("sign left behind", "<< (16 - BITS - at)", "<< (15 - BITS - at)"),
    Mutant("exponent of half the size", "BITS == 4 ? 9 : 7;", "BITS == 4 ? 8 : 7;"),
    Mutant("the first of both", "as_type<half2>(both)[i / each % 2]", "as_type<half2>(both)[0]"),
    Mutant("no lowest bit", "sign - (1u | 1u << 16)", "sign - (1u | 1u << 15)"),
    Mutant("a word too early", "i / (2 * each)", "i / (4 * each)"),
    Mutant("another format of scales", "GROUP == 16", "GROUP == 32"),
    Mutant("a scale's exponent", "as_type<float>(bits << 23)", "as_type<float>(bits << 22)"),
    Mutant("a scale's unit", "ushort(bits << 7))) * E4M3", "ushort(bits << 7)))"),
    Mutant("the unit of other weights", "BITS == 4 ? E2M1 : E4M3", "E2M1"),
    Mutant("shifted the wrong way", "up < 0 ? (word", "up < 2 ? (word"),
    Mutant("the first group's scale", "scales[group]) * (BITS", "scales[0]) * (BITS"),
    Mutant("scales as numbers", "small_scale<GROUP>(scales", "float(scales"),
)


def cases() -> Iterator[Case]:
    """Every format."""
    for bits, group, mode in ((4, 32, "mxfp4"), (8, 32, "mxfp8"), (4, 16, "nvfp4")):
        yield verify_qmv.case(Matmul(2, 10, 64, group, bits, mx.float32, mode))
