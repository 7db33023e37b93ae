"""A kernel's Metal text as a C++ unit for the shim."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .compiler import MACOS
from .text import Parameter, Text

TRIPLES = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threadgroups_per_grid",
    "threads_per_grid",
)
SINGLES = (
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
)
PREAMBLE_LINE = 100_001
"""Where the preamble's lines begin, so that no place in it looks like one of the kernel."""
SECTION = "__DATA$msl_tg" if MACOS else "msl_tg"
BOUNDS = (
    ("section$start$" + SECTION, "section$end$" + SECTION)
    if MACOS
    else ("__start_" + SECTION, "__stop_" + SECTION)
)
WEAK = "" if MACOS else '__attribute__((weak, visibility("hidden")))'
VARIABLE = re.compile(
    r"(?P<before>^|[;{}]\s*|\n\s*)threadgroup\s+"
    r"(?=[\w:<>, ]+\s+\w+\s*(\[[^;]*\])*\s*(,[^;*&]*)?;)"
)
DESCRIPTOR = re.compile(
    r"constexpr auto (\w+) = (mpp::tensor_ops::matmul2d_)descriptor"
    r"\(([^)]*)descriptor::(mode[^)]*)\)"
)
"""An object that is an argument of a template, which C++17 has not."""
LITERAL = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?(?![\w.])")
"""A floating literal without a suffix: a float in Metal, a double in C++."""


@functools.lru_cache(maxsize=256)
def cpp(source: str) -> str:
    """The kernel's text with what is Metal and no C++ written otherwise, line for line."""
    source = re.sub(r"\ntemplate \[\[host_name.*?\n", "\n", source)
    # Once compiled, only what calls it is of use.
    source = source.replace("[[kernel]] void", "static void")
    source = re.sub(r"\s*\[\[threadgroup\(\d+\)\]\]", "", source)
    # A variable, not a pointer or reference into the space.
    source = VARIABLE.sub(r"\g<before>MSL_THREADGROUP_VARIABLE ", source)
    source = DESCRIPTOR.sub(r"using \1 = \2descriptor<\3\4>", source)
    source = LITERAL.sub(r"\g<0>f", source)
    return re.sub(r"\bvec\s*<([^<>]+)>\s*\(", r"metal::msl_make<\1>(", source)


@dataclass(frozen=True)
class Unit:
    """A translation unit: what many kernels begin with, to be compiled once, and the rest."""

    prefix: str
    rest: str


def ending(text: Text, end: str) -> Unit:
    """The unit whose last lines are ``end``."""
    return Unit(
        f'#include <metal_stdlib>\n#line {PREAMBLE_LINE} "preamble"\n{cpp(text.preamble)}\n',
        f'#line 1 "kernel.metal"\n{cpp(text.source)}\n#line 1 "entry"\n{end}',
    )


def typed(text: Text) -> Unit:
    """The unit with address spaces, for reading only."""
    return ending(text, f"auto* msl_instance = &{text.instance};\n")


def runnable(text: Text) -> Unit:
    """The unit without address spaces, with the runtime's two ways in."""
    fields = " ".join(f"uint {name}[3];" for name in TRIPLES)
    fields += " ".join(f"uint {name};" for name in SINGLES)
    numbers = iter(range(len(text.parameters)))
    call = ", ".join(_argument(parameter, numbers) for parameter in text.parameters)
    first, last = BOUNDS
    return ending(
        text,
        f"struct Ids {{ {fields} }};\n"
        f'#define API extern "C" __attribute__((visibility("default"))) MSL_UNCHECKED\n'
        f"API void msl_entry(void** b, const Ids* ids) {{ {text.instance}({call}); }}\n"
        f'extern {WEAK} char msl_section_first[1] asm("{first}");\n'
        f'extern {WEAK} char msl_section_last[1] asm("{last}");\n'
        "API void msl_section(char** first, char** last) {\n"
        "  *first = msl_section_first; *last = msl_section_last;\n}\n",
    )


def _argument(parameter: Parameter, numbers: Iterator[int]) -> str:
    kind, attribute = parameter.type, parameter.attribute
    if attribute == "buffer":
        pointer = f"({kind.rstrip('&* ').strip()}*)b[{next(numbers)}]"
        return f"*{pointer}" if "&" in kind else pointer
    if attribute in ("threads_per_simdgroup", "thread_execution_width"):
        return "32u"
    field = "threads_per_grid" if attribute == "grid_size" else attribute
    if attribute == "grid_origin":
        return "uint3(0u)"
    if field in TRIPLES:
        width = int(kind[-1]) if kind[-1].isdigit() else 1
        parts = ", ".join(f"ids->{field}[{k}]" for k in range(width))
        return f"metal::msl_make<uint, {width}>({parts})" if width > 1 else parts
    if field in SINGLES:
        return f"ids->{field}"
    raise ValueError(f"the harness does not know [[{attribute}]]")
