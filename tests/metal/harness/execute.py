"""Runs a build on arrays through the runtime."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .build import runtime
from .text import Text

Array = NDArray[np.generic]
MOST_THREADS = 1024
MOST_BUFFERS = 31
RED_ZONE = 4096
"""Bytes on both sides of a buffer that belong to nobody."""
CAPACITY = 4096
NOBODY = 0xFFFFFFFF
LOCK = threading.Lock()
"""The runtime's tables and fibers are one process's."""

KINDS = (
    "out of bounds",
    "write to an input",
    "access to memory that is no buffer's",
    "access to another thread's private memory",
    "read of uninitialised memory",
    "never written",
    "race: two writes",
    "race: read and another thread's write",
    "race: write and another thread's read",
    "race: plain access and another thread's atomic",
    "race: atomic and another thread's plain access",
    "not every lane of the simdgroup takes part",
    "threadgroup_barrier is not reached by every thread",
    "threads wait at different barriers",
    "undefined behaviour",
    "",
    "runs without end",
)


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("item", ctypes.c_uint32),
        ("writable", ctypes.c_uint32),
        ("initialised", ctypes.c_uint32),
        ("counts", ctypes.c_void_p),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
    )


class _Fault(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("buffer", ctypes.c_uint32),
        ("index", ctypes.c_int64),
        ("group", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("other_group", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32),
        ("text", ctypes.c_char * 64),
    )


class _Site(ctypes.Structure):
    _fields_ = (("line", ctypes.c_uint32), ("column", ctypes.c_uint32))


class _Variable(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("item", ctypes.c_uint64),
        ("grain", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
    )


class _Run(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("faults", ctypes.c_void_p),
        ("group_begin", ctypes.c_void_p),
        ("group_end", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("group", ctypes.c_uint32 * 3),
        ("order", ctypes.c_uint32),
        ("checked", ctypes.c_uint32),
        ("nbuffers", ctypes.c_uint32),
        ("nvariables", ctypes.c_uint32),
        ("nfaults", ctypes.c_uint32),
        ("capacity", ctypes.c_uint32),
        ("variables", ctypes.c_void_p),
        ("threads", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Traffic:
    """What all threads together did to one buffer in device memory.

    Attributes:
        size: bytes of the buffer.
        read, written: bytes moved; a byte counts once for each time that a thread moves it.
        least, most: how often the least and the most read byte was read (up to 65,535).
    """

    size: int
    read: int
    written: int
    least: int
    most: int


@dataclass(frozen=True)
class Executed:
    """Outputs of one run in the order of their names, and what was seen."""

    outputs: list[Array]
    faults: list[str]
    traffic: dict[str, Traffic]
    threads: int
    switches: int
    threadgroup_bytes: int
    buffers: int


def _place(data: Array, skew: int) -> tuple[Array, NDArray[np.uint8]]:
    """A copy of ``data``, gaps included, between red zones; the arena and the copy's bytes.

    A file is used as it is mapped, so that it can be larger than the memory.
    """
    steps = zip(data.shape, data.strides, strict=True)
    span = data.itemsize + sum((n - 1) * step for n, step in steps) if data.size else 0
    if isinstance(data, np.memmap):
        mapped = (ctypes.c_uint8 * span).from_address(data.ctypes.data)
        return data, np.ctypeslib.as_array(mapped)
    arena = np.full(span + 2 * RED_ZONE + 512, 0xFF, np.uint8)
    start = RED_ZONE + (-(arena.ctypes.data + RED_ZONE)) % 256 + skew
    inside = arena[start : start + span]
    np.ndarray(data.shape, data.dtype, inside, strides=data.strides)[...] = data
    return arena, inside


def execute(
    build: Path,
    text: Text,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, tuple[tuple[int, ...], np.dtype[np.generic]]],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    *,
    checked: bool,
    order: int = 0,
    init: float | None = None,
    skewed: bool = False,
    most: int = 0,
) -> Executed:
    """Run ``text`` on copies of ``inputs``.

    Args:
        build: its shared object.
        inputs: by name; bfloat16 as uint16, bool as uint8; strides as the kernel shall see them.
        outputs: shape and type by name.
        grid, threadgroup: in threads.
        checked: the build is instrumented.
        order: of the threads: 0 ascending, 1 descending, 2 shuffled.
        init: what the outputs hold before the kernel; without it they hold NaN.
        skewed: inputs begin at an odd multiple of their element, as slices do.
        most: threadgroups to run, the first in this order; 0: all.
    """
    extra: dict[str, Array] = {}
    for name, array in inputs.items():
        extra[f"{name}_shape"] = np.array(array.shape, np.int32)
        extra[f"{name}_ndim"] = np.array(array.ndim, np.int32)
        strides = [stride // array.itemsize for stride in array.strides]
        extra[f"{name}_strides"] = np.array(strides, np.int64)
    written = {}
    for name, (shape, dtype) in outputs.items():
        written[name] = np.zeros(shape, dtype) if init is None else np.full(shape, init, dtype)
        if init is None:
            written[name].reshape(-1).view(np.uint8)[:] = 0xFF

    names = [parameter.name for parameter in text.buffers]
    kept, views, buffers, counted = [], {}, [], {}
    for name in names:
        array = next(group[name] for group in (written, inputs, extra) if name in group)
        skew = array.itemsize if skewed and name in inputs else 0
        arena, inside = _place(array, skew)
        kept.append(arena)
        views[name] = inside
        counts = np.zeros(inside.nbytes if checked and name in inputs else 0, np.uint16)
        counted[name] = counts
        buffers.append(
            _Buffer(
                inside.ctypes.data,
                inside.nbytes,
                array.itemsize,
                name in outputs,
                init is not None,
                counts.ctypes.data if counts.size else None,
            )
        )

    machine = runtime()
    library = ctypes.CDLL(str(build))
    first, last = ctypes.c_void_p(), ctypes.c_void_p()
    library.msl_section(ctypes.byref(first), ctypes.byref(last))
    pointers = (ctypes.c_void_p * len(names))(*(views[name].ctypes.data for name in names))
    table = (_Buffer * len(buffers))(*buffers)
    found = (_Fault * CAPACITY)()
    variables: Any = _table(library, "msl_variable", _Variable) if checked else (_Variable * 0)()
    run = _Run(
        ctypes.cast(library.msl_entry, ctypes.c_void_p),
        ctypes.cast(pointers, ctypes.c_void_p),
        ctypes.cast(table, ctypes.c_void_p),
        ctypes.cast(found, ctypes.c_void_p),
        first,
        last,
        (ctypes.c_uint32 * 3)(*grid),
        (ctypes.c_uint32 * 3)(*threadgroup),
        order,
        checked,
        len(buffers),
        len(variables),
        0,
        CAPACITY,
        ctypes.cast(variables, ctypes.c_void_p),
        most=most,
    )
    with LOCK:
        machine.msl_run(ctypes.byref(run))
    traffic = {}
    for name, buffer in zip(names, table, strict=True):
        counts = counted[name]
        least, most = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
        traffic[name] = Traffic(buffer.size, buffer.read, buffer.written, least, most)
    for name, array in written.items():
        array.reshape(-1).view(np.uint8)[:] = views[name]
    first_of = {
        (fault.kind, fault.site, fault.other_site, fault.line): fault
        for fault in reversed(found[: run.nfaults])
    }
    named = names + [variable.name.decode() for variable in variables]
    sites: Any = _table(library, "msl_site", _Site) if checked else (_Site * 0)()
    faults = [_describe(fault, named, text, sites) for fault in reversed(first_of.values())]
    if run.nfaults > len(faults):
        faults.append(f"{run.nfaults} findings in all")
    return Executed(
        list(written.values()),
        faults,
        traffic,
        run.threads,
        run.switches,
        sum(variable.size for variable in variables),
        len(names),
    )


def _table(library: ctypes.CDLL, name: str, kind: Any) -> Any:
    """A table that ``instrument`` left in a build."""
    count = ctypes.c_uint32.in_dll(library, f"{name}_count").value
    return (kind * count).in_dll(library, f"{name}s")


def _describe(fault: _Fault, names: Sequence[str], text: Text, sites: ctypes.Array[_Site]) -> str:
    def place(number: int) -> str:
        site = sites[number] if number < len(sites) else _Site()
        return text.place(site.line, site.column) if site.line else ""

    words = fault.text.decode()
    if kind := KINDS[fault.kind]:
        words = f"{kind}: {words}" if words else kind
    where = place(fault.site)
    if not where and fault.line:
        where = text.place(fault.line >> 10, fault.line & 1023)
    said = f"{where or text.name}: {words}"
    if fault.buffer < len(names):
        said += f", {names[fault.buffer]}[{fault.index}]"
    if fault.thread != NOBODY:
        said += f", thread {fault.thread} of threadgroup {fault.group}"
    if fault.other_thread != NOBODY:
        said += f", with thread {fault.other_thread}"
        if fault.other_group != fault.group:
            said += f" of threadgroup {fault.other_group}"
        if other := place(fault.other_site):
            said += f" at {other}"
    return said
