"""How many registers a lane of a kernel needs, as LLVM's back end for RDNA gives them out.

Its GPUs run 32 lanes with registers of 32 bits and keep what is the same in all lanes elsewhere, as
Apple's do. How Apple's compiler orders loads is unknown, so compare a kernel with MLX's own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from .compiler import LANGUAGE, cached, compiler
from .text import Parameter, Text
from .translate import Unit, ending

MOST = 128
"""That a lane of an Apple GPU can name."""
OF_A_CORE = 208 * 1024
"""Bytes of registers of a core of M1 and M2, for all its threads (Rosenzweig, "Dissecting the Apple
M1 GPU", part III); later chips give them out while a kernel runs."""
FLAGS = (
    *("--target=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-DMSL_SPACES=2", "-O2"),
    *(flag for flag in LANGUAGE if not flag.startswith(("--target", "-march"))),
    *("-ffp-contract=fast", "-S"),
)
LANES = {
    "thread_index_in_simdgroup": "metal::msl_lane()",
    "thread_index_in_threadgroup": "__builtin_amdgcn_workitem_id_x()",
    "threads_per_simdgroup": "32u",
}


class Registers(NamedTuple):
    """Of a lane: registers, and values that found none; bytes of the threadgroup."""

    count: int
    spilled: int
    threadgroup_bytes: int


def registers(text: Text, threads: int, most: int = MOST) -> Registers:
    """What a kernel takes where a lane has ``most`` registers, in threadgroups of ``threads``."""
    unit = _unit(text, threads, most)

    def build(path: Path) -> None:
        compiler()([*FLAGS, "-o", str(path)], unit.prefix + unit.rest)

    code = cached(".s", ["registers", unit, FLAGS], build).read_text(encoding="utf-8")
    names = "vgpr_count", "vgpr_spill_count", "group_segment_fixed_size"
    found = (re.search(rf"\.{name}:\s+(\d+)", code) for name in names)
    return Registers(*(int(it[1]) for it in found if it))


def _unit(text: Text, threads: int, most: int) -> Unit:
    kinds, values = zip(*map(_argument, range(99), text.parameters), strict=True)
    size = f"amdgpu_flat_work_group_size({threads}, {threads}), amdgpu_num_vgpr({most})"
    return ending(
        text,
        f'extern "C" __attribute__((amdgpu_kernel, {size}))\n'
        f"void msl_entry({', '.join(filter(None, kinds))}) "
        f"{{ {text.instance}({', '.join(values)}); }}\n",
    )


def _argument(number: int, parameter: Parameter) -> tuple[str, str]:
    """How the entry declares a parameter, and what it passes on."""
    name, attribute = f"p{number}", parameter.attribute
    if attribute in LANES:
        return "", LANES[attribute]
    if attribute != "buffer":
        varies = attribute in ("thread_position_in_grid", "thread_position_in_threadgroup")
        lane = " + __builtin_amdgcn_workitem_id_x()" * varies
        return f"{parameter.type} {name}", name + lane
    kind = parameter.type.replace("const constant", "constant")
    return kind.replace("&", "*") + f" {name}", "*" * ("&" in kind) + name
