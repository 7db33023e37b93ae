"""Each class of fault is found where it is, and nothing in the same text without it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from harness import Case, Fault, Mutant, Outputs, inline, installed, run
from harness.mutants import caught

from macspec.metal.kernel import Kernel, Launch

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
LAUNCH = Launch((128, 1, 1), (64, 1, 1), (), ((128,),), (mx.float32,))
X = mx.arange(1, 129, dtype=mx.float32)

REVERSE = f"""
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
{BARRIER}
out[at] = t[63 - i];
"""
NEIGHBOUR = """
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
simdgroup_barrier(mem_flags::mem_threadgroup);
out[at] = t[i ^ 1];
"""
REUSE = f"""
threadgroup float t[64];
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
t[i] = x[at];
{BARRIER}
float y = t[63 - i];
{BARRIER} // before the next round
t[i] = y;
{BARRIER}
out[at] = t[i ^ 33];
"""
THROUGH_DEVICE = """
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
out[at] = x[at];
threadgroup_barrier(mem_flags::mem_device); // written
float y = out[at - i + (63 - i)];
threadgroup_barrier(mem_flags::mem_device); // read
out[at] = y;
"""
STORE = "atomic_store_explicit(&n, 0u, memory_order_relaxed)"
ADD = "atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed)"
LOAD = "atomic_load_explicit(&n, memory_order_relaxed)"
COUNT = f"""
threadgroup atomic_uint n;
uint i = thread_index_in_threadgroup, at = thread_position_in_grid.x;
if (i == 0) {STORE};
{BARRIER}
if (x[at] > 9) {ADD};
{BARRIER} // counted
out[at] = {LOAD};
"""
LANES = """
uint at = thread_position_in_grid.x;
float y = simd_max(x[at]);
float z = simd_shuffle(x[at], ushort(3));
out[at] = y + z;
"""
WIDE = """
uint at = thread_position_in_grid.x;
const device float4* p = (const device float4*)x;
out[at] = p[at / 4][at % 4];
"""
LONG = """
uint at = thread_position_in_grid.x;
const device ulong4* p = (const device ulong4*)x;
out[at] = float(p[at / 8].x & 1);
"""
PRIVATE = """
uint at = thread_position_in_grid.x;
float part[4];
for (uint k = 0; k < 4; k++) part[k] = x[at] * k;
float sum = 0;
for (uint k = 0; k < 4; k++) sum += part[(k + at) % 4];
out[at] = sum;
"""
BITS = """
uint at = thread_position_in_grid.x;
int i = int(x[at]);
out[at] = float((1u << (i % 31)) + uint(100 / i + i * 2));
"""
FILL = """
uint i = thread_position_in_grid.x;
if (i < 2) {
  for (uint k = 0; k < 32; k++) out[64 * i + k] = 0;
  for (uint k = 0; k < 32; k++) out[64 * i + 32 + k] = x[64 * i + k];
}
"""

INTACT = {
    "reverse": REVERSE,
    "neighbour": NEIGHBOUR,
    "reuse": REUSE,
    "through device": THROUGH_DEVICE,
    "count": COUNT,
    "lanes": LANES,
    "wide": WIDE,
    "long": LONG,
    "private": PRIVATE,
    "bits": BITS,
    "fill": FILL,
}


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
    "far away": (REVERSE, "x[at]", "x[(at + 1) << 24]", "access to memory that is no buffer's"),
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


def launch(text: str, **how: bool) -> Outputs:
    return run(inline(text, ("x",), ("out",)), [X], LAUNCH, **how)


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


def test_values_of_private_variables_nobody_set() -> None:
    """No checker sees them: the plain build fills them with NaN."""
    out = launch(PRIVATE.replace("k < 4; k++) part", "k < 3; k++) part"))
    assert np.isnan(np.array(out[0])).all()


def test_slices() -> None:
    """A wide load is fine at the start of a buffer and not at an odd element."""
    launch(WIDE)
    with pytest.raises(Fault, match="misaligned access"):
        launch(WIDE, skewed=True)
    assert launch(REVERSE, skewed=True)[0].tolist() == launch(REVERSE)[0].tolist()


def test_order() -> None:
    """The last of several atomic stores is no result."""
    text = """threadgroup atomic_uint n; uint i = thread_index_in_threadgroup;
      atomic_store_explicit(&n, i, memory_order_relaxed);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[thread_position_in_grid.x] = atomic_load_explicit(&n, memory_order_relaxed) + x[0];"""
    with pytest.raises(Fault, match=r"out differs in .* bytes in thread order 1") as caught:
        launch(text)
    assert caught.value.layer == "order"


def test_fusing() -> None:
    text = "uint i = thread_position_in_grid.x; out[i] = x[i] * x[i] + x[0] * 0.1;"
    thirds = X / 3
    kernel = inline(text, ("x",), ("out",))
    out = run(kernel, [thirds], LAUNCH)
    assert out[0].tolist() != out.unfused[0].tolist()
    with pytest.raises(Fault, match="without fused multiply-add"):
        run(kernel, [thirds], LAUNCH, same_bits=True)
    launch(REVERSE, same_bits=True)


def test_limits() -> None:
    wide = Launch((2048, 1, 1), (2048, 1, 1), (), ((128,),), (mx.float32,))
    with pytest.raises(Fault, match="2048 threads a threadgroup; Metal has at most 1024"):
        run(inline(REVERSE, ("x",), ("out",)), [X], wide)
    names = [f"x{number}" for number in range(31)]
    many = inline("out[thread_position_in_grid.x] = x0[0];", names, ("out",))
    with pytest.raises(Fault, match="32 buffers; Metal has at most 31"):
        run(many, [X] * 31, LAUNCH)


def test_traffic() -> None:
    """Bytes of every thread are counted, and how often each was read."""
    out = launch(REVERSE)
    x, written = out.report.traffic["x"], out.report.traffic["out"]
    assert (x.size, x.read, x.written, x.least, x.most) == (512, 512, 0, 1, 1)
    assert (written.read, written.written) == (0, 512)
    assert (out.report.threadgroup_bytes, out.report.threads, out.report.buffers) == (256, 128, 2)
    twice = launch(REVERSE.replace("x[at]", "x[at] + x[at / 2]")).report.traffic["x"]
    assert (twice.read, twice.least, twice.most) == (1024, 1, 3)


def test_runs_do_not_meet() -> None:
    """A kernel with few buffers after one with many, as the runtime keeps its tables."""
    names = [f"x{number}" for number in range(20)]
    total = " + ".join(f"x{number}[at]" for number in range(20))
    body = f"uint at = thread_position_in_grid.x; out[at] = {total};"
    run(inline(body, names, ("out",)), [X] * 20, LAUNCH)
    launch(REVERSE)


def test_init() -> None:
    filled = Launch((128, 1, 1), (64, 1, 1), (), ((128,),), (mx.float32,), init=3)
    out = run(inline("out[thread_position_in_grid.x] += x[0];", ("x",), ("out",)), [X], filled)
    assert (np.array(out[0]) == 4).all()


def test_places() -> None:
    """Findings name the file and line that the text comes from."""
    text = '#line 41 "reverse.metal"\n' + REVERSE.replace("x[at]", "x[at + 1]")
    with pytest.raises(Fault, match=r"reverse\.metal:44:\d+: out of bounds"):
        launch(text)
    with pytest.raises(Fault, match=r"reverse\.metal:46:\d+: error: "):
        launch(text.replace("63 - i", "nothing"))


def test_line_of_a_helper() -> None:
    """In code inlined from the library, the line that called it."""
    text = "uint at = thread_position_in_grid.x;\n" + (
        "simdgroup_float8x8 m;\nsimdgroup_load(m, x + 120, 8);\nout[at] = m.thread_elements()[0];"
    )
    with pytest.raises(Fault, match=r"kernel\.metal:7:1: out of bounds, x\[128\]"):
        launch(text)


def test_export_list() -> None:
    """What we read stands where MLX puts it: the callback's list is marked experimental."""
    kernel = inline("out[thread_position_in_grid.x] = x[0] * M;", ("x", "s"), ("out",))
    sizes = Launch((64, 2, 1), (32, 1, 1), (("T", mx.bfloat16), ("M", 4)), ((64,),), (mx.bfloat16,))
    records: list[dict[str, object]] = []
    mx.export_function(records.append, lambda *arrays: kernel(arrays, sizes), X, mx.array(1))
    (record,) = [record for record in records if record.get("name") == "CustomKernel"]
    name, source, *rest = record["arguments"]  # type: ignore[misc]
    assert rest[:6] == [64, 2, 1, 32, 1, 1]
    shapes = [(False, False, False)] * 2
    assert rest[6:] == [shapes, True, [], False, 0, 0]
    assert f"[[kernel]] void {name}(\n  const device float* x [[buffer(0)]],\n" in source
    assert f"decltype({name}<bfloat16_t, 4>) {name}<bfloat16_t, 4>;" in source


def pipeline(kernel: Kernel) -> mx.array:
    (reversed_once,) = kernel([X], LAUNCH)
    (reversed_twice,) = kernel([reversed_once + 1], LAUNCH)
    return reversed_twice


def test_installed() -> None:
    kernel = inline(REVERSE, ("x",), ("out",))
    with installed() as launched:
        assert pipeline(kernel).tolist() == (X + 1).tolist()
    assert launched == ["inline", "inline"]
    with installed(inspected=False):
        assert pipeline(kernel).tolist() == (X + 1).tolist()
    with installed(), pytest.raises(Fault, match="uninitialised"):
        pipeline(inline(REVERSE.replace(BARRIER, ""), ("x",), ("out",)))
    if not mx.metal.is_available():
        with pytest.raises(RuntimeError):
            mx.eval(pipeline(kernel))


def test_mutants() -> None:
    kernel = inline(REVERSE, ("x",), ("out",))
    want = np.array(X).reshape(2, 64)[:, ::-1].reshape(-1)
    case = Case(kernel, [X], LAUNCH, lambda outputs: bool((np.array(outputs[0]) == want).all()))
    assert caught(Mutant("same", "t[63 - i]", "t[63 - i + 0]"), [case]) == ""
    assert caught(Mutant("value", "t[63 - i]", "t[i]"), [case]) == "values"
    assert caught(Mutant("race", BARRIER, ""), [case]).startswith("run: kernel.metal")
    assert caught(Mutant("type", "float t", "double t"), [case]).startswith("lint: ")
    for wrong in (
        Mutant("often", "at", "i"),
        Mutant("nowhere", "absent", ""),
        Mutant("another", BARRIER, "", kernel="other"),
    ):
        with pytest.raises(ValueError, match=f"{wrong.name}: its text stands"):
            caught(wrong, [case])
