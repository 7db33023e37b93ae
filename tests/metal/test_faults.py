"""Each class of fault is found where it is, and nothing in the same text without it."""

from __future__ import annotations

import pytest
from harness import Fault
from texts import (
    ADD,
    BARRIER,
    BITS,
    COUNT,
    FILL,
    INTACT,
    LANES,
    LOAD,
    LONG,
    NEIGHBOUR,
    PRIVATE,
    REUSE,
    REVERSE,
    STORE,
    THROUGH_DEVICE,
    WIDE,
    launch,
)

BROKEN = {
    "no barrier": (REVERSE, BARRIER, "", r"read of uninitialised memory, t\[63\]"),
    "simdgroup barrier for threadgroup": (
        REVERSE,
        "threadgroup_b",
        "simdgroup_b",
        r"race: .* t\[63\]",
    ),
    "barrier without flag": (REVERSE, "mem_threadgroup", "mem_none", "race: read and another"),
    "barrier with the other flag": (REVERSE, "mem_threadgroup", "mem_device", "race: read and"),
    "lanes without a barrier": (
        NEIGHBOUR,
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
        "",
        "race",
    ),
    "lanes of another simdgroup": (NEIGHBOUR, "i ^ 1", "i ^ 33", "race: read and another"),
    "reused too early": (REUSE, f"{BARRIER} // before", "// before", "race: write and another"),
    "device memory, other flag": (
        THROUGH_DEVICE,
        "mem_device); // written",
        "mem_threadgroup);",
        r"race: read and another thread's write, out\[",
    ),
    "device memory, reused too early": (
        THROUGH_DEVICE,
        "threadgroup_barrier(mem_flags::mem_device); // read",
        "",
        r"race: write and another thread's read, out\[",
    ),
    "another threadgroup's output": (
        THROUGH_DEVICE,
        "at - i + (63 - i)",
        "(at + 64) % 128",
        "read of uninitialised memory, out|race: read and another",
    ),
    "two writers": (REVERSE, "out[at]", "out[at / 2]", "race: two writes"),
    "two threadgroups write": (
        REVERSE,
        "out[at]",
        "out[i]",
        "of threadgroup 1, with thread . of thr",
    ),
    "plain write beside an atomic": (COUNT, ADD, "((threadgroup uint*)&n)[0] += 1", "race: "),
    "plain read after atomics": (
        COUNT,
        f"{BARRIER} // counted\nout[at] = {LOAD}",
        "out[at] = ((threadgroup uint*)&n)[0]",
        "race: plain access and another thread's atomic",
    ),
    "atomic after a plain write": (
        COUNT,
        f"{STORE};\n{BARRIER}",
        "((threadgroup uint*)&n)[0] = 0;",
        "race: atomic and another thread's plain",
    ),
    "counter never set": (COUNT, STORE, "", "read of uninitialised memory"),
    "read beyond the end": (
        REVERSE,
        "x[at]",
        "x[at + 1]",
        r"out of bounds, x\[128\], thread 63 of",
    ),
    "read before the start": (
        REVERSE,
        "x[at]",
        "x[int(at) - 1]",
        r"out of bounds, x\[-1\], thread 0",
    ),
    "write beyond the end": (REVERSE, "out[at]", "out[at + 1]", r"out of bounds, out\[128\]"),
    "far away": (REVERSE, "x[at]", "x[at + (1ul << 46)]", "access to memory that is no buffer's"),
    "four beyond the end": (WIDE, "at / 4", "at / 4 + 1", r"out of bounds, x\[128\]"),
    "four misaligned": (WIDE, "float4*)x;", "float4*)(x + 1);", "misaligned access"),
    "vector of 32 bytes beyond": (LONG, "at / 8", "at / 8 + 1", r"out of bounds, x\[128\]"),
    "fill beyond the end": (
        FILL,
        "out[64 * i + k] = 0",
        "out[64 * i + k + 65] = 0",
        "out of bounds, o",
    ),
    "block read beyond the end": (FILL, "x[64 * i + k]", "x[65 * i + k + 64]", "out of bounds, x"),
    "block read of another's": (
        FILL,
        "x[64 * i + k]",
        "out[65 - 64 * i + k]",
        "race|uninitialised",
    ),
    "group memory beyond": (REVERSE, "t[63 - i]", "(t + 1)[63 - i]", r"out of bounds, t\[64\]"),
    "group array's index": (REVERSE, "t[63 - i]", "t[64 - i]", "array index out of bounds"),
    "private array's index": (PRIVATE, "(k + at) % 4", "k + at % 2", "array index out of bounds"),
    "write to an input": (
        REVERSE,
        "t[i] =",
        "((device float*)x)[at] = 0; t[i] =",
        "write to an inp",
    ),
    "output not written": (REVERSE, "out[at]", "if (at != 5) out[at]", r"never written, out\[5\]"),
    "output read first": (REVERSE, "out[at] =", "out[at] +=", "read of uninitialised memory, out"),
    "group memory not set": (REVERSE, "t[i] =", "if (i) t[i] =", "read of uninitialised memory"),
    "operation of some lanes": (
        LANES,
        "float y =",
        "float y = 0; if (at % 32 < 20) y =",
        "not every lane of the simdgroup",
    ),
    "shuffle from an idle lane": (
        LANES,
        "float z =",
        "float z = 0; if (at % 32 > 3) z =",
        "reads an inactive lane",
    ),
    "shuffle from no lane": (LANES, "ushort(3)", "ushort(32)", "source lane out of range"),
    "barrier for some": (
        REVERSE,
        BARRIER,
        f"if (i < 40) {{ {BARRIER} }}",
        "barrier|not every lane",
    ),
    "return before a barrier": (
        REVERSE,
        "t[i] =",
        "if (i == 63) { out[at] = 0; return; }\nt[i] =",
        "threadgroup_barrier is not reached by every thread",
    ),
    "different barriers": (
        REVERSE,
        BARRIER,
        f"if (i < 32) {{ {BARRIER} }} else {{ {BARRIER} }}",
        "threads wait at different barriers",
    ),
    "shift by the width": (BITS, "i % 31", "i % 40", "undefined behaviour: shift by the width"),
    "division by zero": (BITS, "100 / i", "100 / (i - 1)", "undefined behaviour: division by zero"),
    "signed overflow": (BITS, "i * 2", "i * 2000000000", "signed multiplication overflows"),
    "float to int": (
        BITS,
        "int(x[at])",
        "int(x[at] * 1e10)",
        "value does not fit the integer type",
    ),
    "no end": (
        REVERSE,
        "out[at]",
        "volatile threadgroup float* p = t; while (p[0] > 0) {}\nout[at]",
        "runs without end",
    ),
    "too much group memory": (
        REVERSE,
        "t[i] =",
        "threadgroup float u[8192]; u[i] = 0; t[i] =",
        "33024 bytes of threadgroup memory; Metal has 32768",
    ),
}
REFUSED = {
    "space left out": (
        "const device float4* p",
        "const threadgroup float4* p",
        "cannot initialize",
    ),
    "cast between spaces": (
        "out[at] =",
        "threadgroup float t[1]; ((device float*)t)[0] = 1;\nout[at] =",
        "cast between address spaces",
    ),
    "constant written": ("out[at] =", "((device float4*)p)[0] = 1; p[0] = 1;\nout[at] =", "assign"),
    "float to bfloat": (
        "out[at] =",
        "bfloat16_t b = x[at];\nout[at] = b +",
        "loses floating-point",
    ),
    "float to half": ("out[at] =", "half h = x[at];\nout[at] = h +", "loses floating-point"),
    "unset variable": ("out[at] =", "float y; y += 1;\nout[at] = y +", "uninitialized"),
    "unknown name": ("out[at] =", "out[at] = nothing +", "undeclared identifier"),
}


@pytest.mark.parametrize("name", INTACT)
def test_intact(name: str) -> None:
    assert launch(INTACT[name]).report.warnings == ""


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    text, old, new, said = BROKEN[name]
    assert text.count(old) == 1
    with pytest.raises(Fault, match=said) as caught:
        launch(text.replace(old, new))
    assert caught.value.layer == "run"


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    old, new, said = REFUSED[name]
    assert WIDE.count(old) == 1
    with pytest.raises(Fault, match=said) as caught:
        launch(WIDE.replace(old, new))
    assert caught.value.layer == "check"
