"""What the harness promises beside finding faults."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from harness import Case, Fault, Mutant, inline, installed, run
from harness.mutants import caught
from texts import BARRIER, LAUNCH, PRIVATE, REVERSE, WIDE, X, launch

from macspec.metal.kernel import Kernel, Launch


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
    assert "using T = bfloat16_t;\nconstexpr int M = 4;\n" in source


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
