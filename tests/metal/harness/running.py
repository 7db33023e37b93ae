"""One launch of a kernel through every layer of the harness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from macspec.metal.kernel import MOST_THREADGROUP_BYTES, Kernel, Launch

from .build import check, instrumented, plain
from .execute import (
    MOST_BUFFERS,
    MOST_THREADS,
    Array,
    Executed,
    Traffic,
    execute,
)
from .faults import Fault
from .headers import flattened
from .lint import lint
from .text import Exported, Text, export

ORDERS = (0, 1, 2)
LAUNCH = Kernel.__call__
"""Before ``installed`` replaces it."""
NUMPY: dict[Any, Any] = {
    mx.float32: np.float32,
    mx.float16: np.float16,
    mx.bfloat16: np.uint16,
    mx.bool_: np.uint8,
    mx.int8: np.int8,
    mx.int16: np.int16,
    mx.int32: np.int32,
    mx.int64: np.int64,
    mx.uint8: np.uint8,
    mx.uint16: np.uint16,
    mx.uint32: np.uint32,
    mx.uint64: np.uint64,
}


@dataclass(frozen=True)
class Report:
    """What the instrumented run saw.

    Attributes:
        traffic: by buffer.
        threads: of the whole grid.
        threadgroup_bytes: declared.
        buffers: bound.
        warnings: of the check pass.
    """

    traffic: dict[str, Traffic]
    threads: int
    threadgroup_bytes: int
    buffers: int
    warnings: str


class Outputs(list[mx.array]):
    """The outputs with fused multiply-adds, and beside them what else came of the run.

    Attributes:
        unfused: the outputs of the build that fuses nothing.
        report: what the instrumented run saw.
    """

    unfused: list[mx.array]
    report: Report


def to_numpy(array: mx.array, *, strided: bool = False) -> Array:
    """The array's values, row after row or ``strided`` as they lie in memory.

    bfloat16 comes as uint16, bool as uint8.
    """
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
    elif array.dtype == mx.bool_:
        array = array.view(mx.uint8)
    if strided:
        return np.array(array, copy=None)
    return np.ascontiguousarray(np.array(array)).reshape(array.shape)


def from_numpy(array: Array, dtype: mx.Dtype) -> mx.array:
    """The other way."""
    made = mx.array(array)
    return made.view(dtype) if dtype == mx.bfloat16 else made.astype(dtype)


@dataclass(frozen=True)
class Prepared:
    """A launch, recorded by MLX and ready to run."""

    text: Text
    inputs: dict[str, Array]
    outputs: dict[str, tuple[tuple[int, ...], Any]]
    launch: Launch
    exported: Exported

    def execute(self, build: Any, **how: Any) -> Executed:
        """Run one build of it."""
        grid, threadgroup = self.exported.grid, self.exported.threadgroup
        init = self.launch.init
        return execute(
            build, self.text, self.inputs, self.outputs, grid, threadgroup, init=init, **how
        )

    def arrays(self, executed: Executed) -> list[mx.array]:
        """The outputs as MLX arrays."""
        return [
            from_numpy(output, dtype)
            for output, dtype in zip(executed.outputs, self.launch.dtypes, strict=True)
        ]


def prepare(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> Prepared:
    """Have MLX write the text of a launch.

    Raises:
        Fault: more threads or buffers than Metal has.
    """
    if len(arrays) != len(kernel.inputs):
        raise ValueError(f"{kernel.name} takes {len(kernel.inputs)} arrays, not {len(arrays)}")
    arrays = [array if isinstance(array, mx.array) else mx.array(array) for array in arrays]
    mx.eval(arrays)
    call: Callable[..., Any] = lambda *inputs: LAUNCH(kernel, inputs, launch)  # noqa: E731
    exported = export(call, arrays, flattened())
    text = exported.text
    wrong = []
    if (threads := math.prod(exported.threadgroup)) > MOST_THREADS:
        wrong.append(f"{threads} threads a threadgroup; Metal has at most {MOST_THREADS}")
    if (buffers := len(text.buffers)) > MOST_BUFFERS:
        wrong.append(f"{buffers} buffers; Metal has at most {MOST_BUFFERS}")
    if wrong:
        raise Fault("limits", text.name, wrong)
    return Prepared(
        text,
        {
            name: to_numpy(array, strided=not exported.contiguous)
            for name, array in zip(kernel.inputs, arrays, strict=True)
        },
        {
            name: (tuple(shape), np.dtype(NUMPY[dtype]))
            for name, shape, dtype in zip(kernel.outputs, launch.shapes, launch.dtypes, strict=True)
        },
        launch,
        exported,
    )


def inspect(prepared: Prepared, *, skewed: bool = False) -> Report:
    """Lint, check pass and instrumented run.

    Raises:
        Fault: either found something.
    """
    text = prepared.text
    if refused := lint(text):
        raise Fault("lint", text.name, refused)
    with ThreadPoolExecutor(2) as pool:
        checking, building = pool.submit(check, text), pool.submit(instrumented, text)
        warnings = checking.result()
        build = building.result()
    seen = prepared.execute(build, checked=True, skewed=skewed)
    faults = list(seen.faults)
    if seen.threadgroup_bytes > MOST_THREADGROUP_BYTES:
        faults.append(
            f"{seen.threadgroup_bytes} bytes of threadgroup memory; "
            f"Metal has {MOST_THREADGROUP_BYTES}"
        )
    if faults:
        raise Fault("run", text.name, faults)
    return Report(seen.traffic, seen.threads, seen.threadgroup_bytes, seen.buffers, warnings)


def run(
    kernel: Kernel,
    arrays: Sequence[mx.array],
    launch: Launch,
    *,
    same_bits: bool = False,
    skewed: bool = False,
    inspected: bool = True,
) -> Outputs:
    """Run one launch of a kernel through every layer.

    First the check pass and the instrumented run, then the optimised build in three orders of the
    threads, with and without fused multiply-add.

    Args:
        kernel, arrays, launch: as for ``kernel(arrays, launch)``.
        same_bits: fused and unfused results must be equal too, for kernels whose result must not
            depend on what the GPU's compiler fuses.
        skewed: inputs begin at odd multiples of their element size, as slices of arrays may.
        inspected: False leaves out the check pass and the instrumented run (and the report): for
            many cases of a kernel that has been inspected with the same template arguments.

    Returns:
        The outputs, with ``unfused`` and ``report``.

    Raises:
        Fault: any layer found something, or an output depends on the order of the threads.
    """
    prepared = prepare(kernel, arrays, launch)
    outputs = Outputs()
    if inspected:
        outputs.report = inspect(prepared, skewed=skewed)
    results: dict[bool, Executed] = {}
    with ThreadPoolExecutor(2) as pool:
        builds = pool.map(lambda fused: plain(prepared.text, fused=fused), (True, False))
    for fused, build in zip((True, False), builds, strict=True):
        for order in ORDERS:
            done = prepared.execute(build, checked=False, order=order, skewed=skewed)
            if done.faults:
                raise Fault("run", prepared.text.name, done.faults)
            reference = results.setdefault(fused, done)
            _same(reference, done, prepared, f"in thread order {order}")
    if same_bits:
        _same(results[True], results[False], prepared, "without fused multiply-add")
    outputs[:] = prepared.arrays(results[True])
    outputs.unfused = prepared.arrays(results[False])
    return outputs


def run_once(
    kernel: Kernel, arrays: Sequence[mx.array], launch: Launch, *, inspected: bool = True
) -> list[mx.array]:
    """Check pass, instrumented run (unless not ``inspected``), and one plain run.

    Raises:
        Fault: any of them found something.
    """
    prepared = prepare(kernel, arrays, launch)
    if inspected:
        inspect(prepared)
    done = prepared.execute(plain(prepared.text, fused=True), checked=False)
    if done.faults:
        raise Fault("run", prepared.text.name, done.faults)
    return prepared.arrays(done)


def _same(one: Executed, other: Executed, prepared: Prepared, how: str) -> None:
    for name, a, b in zip(prepared.outputs, one.outputs, other.outputs, strict=True):
        differ = int((a.reshape(-1).view(np.uint8) != b.reshape(-1).view(np.uint8)).sum())
        if differ:
            raise Fault("order", prepared.text.name, [f"{name} differs in {differ} bytes {how}"])
