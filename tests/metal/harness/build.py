"""Shared objects of a kernel's text, instrumented and plain, and its check with address spaces."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .compiler import HERE, LANGUAGE, MACHINE, CompileError, cached, compiler
from .faults import Fault
from .instrument import FLAGS, instrument
from .text import Text
from .translate import Unit, runnable, typed

RUNTIME = HERE / "runtime" / "msl_rt.cpp"
STRICT = (
    "-Wall",
    "-Wno-unused",
    "-Wno-bitwise-op-parentheses",
    "-Wno-unknown-pragmas",
    "-Wno-unused-but-set-variable",
    "-Werror=implicit-float-conversion",
    "-Wno-implicit-int-float-conversion",
    "-Werror=return-type",
    "-Werror=uninitialized",
    "-Werror=sometimes-uninitialized",
)
UNDEFINED = (
    "alignment,array-bounds,shift-exponent,integer-divide-by-zero,signed-integer-overflow,"
    "float-cast-overflow"
)
CODE = ("-fPIC", "-fvisibility=hidden", "-gline-tables-only")
SANITIZED = (
    *FLAGS,
    "-Xclang",
    f"-fsanitize={UNDEFINED}",
    "-Xclang",
    f"-fsanitize-recover={UNDEFINED}",
    "-fno-vectorize",
    "-fno-slp-vectorize",
)
ASSEMBLE = (
    *(flag for flag in LANGUAGE if flag.startswith(("--target", "-march"))),
    *("-x", "ir", "-O1", "-Xclang", "-disable-llvm-passes", "-fPIC", "-Wno-override-module"),
)
FUSED = ("-ffp-contract=on", *(("-mfma",) if MACHINE == "x86_64" else ()))
"""Products and sums of one expression may be fused, as MLX's own library allows."""


@functools.lru_cache(maxsize=512)
def check(text: Text) -> str:
    """Compile with address spaces as types; returns the warnings.

    Raises:
        Fault: the text breaks a rule of Metal that a compiler can see.
    """

    def build(path: Path) -> None:
        module = path.with_suffix(".ll")
        said = _compile(arguments, ["-S", "-emit-llvm", "-o", str(module)], unit)
        lowered = module.read_text(encoding="utf-8")
        if cast := re.search(r"^.*\baddrspacecast\b.*$", lowered, re.M):
            raise Fault("check", text.name, [f"cast between address spaces: {cast[0].strip()}"])
        if cycle := _recursion(lowered):
            raise Fault("lint", text.name, [f"Metal has no recursion: {' calls '.join(cycle)}"])
        path.write_text(said, encoding="utf-8")

    unit = typed(text)
    arguments = [*LANGUAGE, *STRICT, "-DMSL_SPACES=1", "-O0"]
    with _compiling(text):
        return cached(".warnings", ["check", unit, arguments], build).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=512)
def instrumented(text: Text) -> Path:
    """The build that reports every access."""

    def build(path: Path) -> None:
        module, thing = path.with_suffix(".ll"), path.with_suffix(".o")
        _compile(arguments, ["-S", "-emit-llvm", "-o", str(module)], unit)
        done = instrument(module.read_text(encoding="utf-8")).module
        compiler()([*ASSEMBLE, "-c", "-o", str(thing)], done)
        compiler().link(thing, path)

    unit = runnable(text)
    arguments = [*LANGUAGE, *CODE, *SANITIZED, "-O1", "-ffp-contract=off"]
    hooks = (HERE / "instrument.py").read_text(encoding="utf-8")
    with _compiling(text):
        return cached(".so", ["instrumented", unit, arguments, ASSEMBLE, hooks], build)


@functools.lru_cache(maxsize=512)
def plain(text: Text, *, fused: bool) -> Path:
    """The optimised build; private variables that nothing sets hold NaN."""
    unit = runnable(text)
    contraction = FUSED if fused else ("-ffp-contract=off",)
    arguments = [*LANGUAGE, *CODE, "-O2", "-ftrivial-auto-var-init=pattern", *contraction]

    def build(path: Path) -> None:
        thing = path.with_suffix(".o")
        _compile(arguments, ["-c", "-o", str(thing)], unit)
        compiler().link(thing, path)

    with _compiling(text):
        return cached(".so", ["plain", unit, arguments], build)


def optimised(text: Text) -> str:
    """The optimised code, in LLVM's language: scalar, as a GPU's lane computes it."""

    def build(path: Path) -> None:
        _compile(arguments, ["-S", "-emit-llvm", "-o", str(path)], unit)

    unit = runnable(text)
    scalar = ("-fno-vectorize", "-fno-slp-vectorize", "-ffp-contract=off")
    arguments = [*LANGUAGE, *CODE, "-O2", *scalar]
    with _compiling(text):
        return cached(".ll", ["optimised", unit, arguments], build).read_text(encoding="utf-8")


def _compile(arguments: Sequence[str], output: Sequence[str], unit: Unit) -> str:
    """Compile a unit; its prefix is read from a precompiled header."""

    def build(path: Path) -> None:
        header = ["-x", "c++-header", "-Xclang", "-fno-pch-timestamp", "-o", str(path)]
        compiler()([*arguments, *header], unit.prefix)

    prefix = cached(".pch", ["prefix", unit.prefix, arguments], build)
    return compiler()([*arguments, "-include-pch", str(prefix), *output], unit.rest)


def _recursion(module: str) -> list[str]:
    """A cycle of calls between the functions of a module, if there is one."""
    calls: dict[str, list[str]] = {}
    inside = ""
    for line in module.split("\n"):
        if found := re.match(r"define .*?@(\w+)\(", line):
            inside = found[1]
            calls[inside] = []
        elif inside:
            calls[inside] += re.findall(r"\bcall [^@]*@(\w+)\(", line)
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done or name not in calls:
            return []
        for called in calls[name]:
            if cycle := visit(called, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in calls)), [])


@contextmanager
def _compiling(text: Text) -> Iterator[None]:
    """What the compiler says is a fault of the kernel."""
    try:
        yield
    except CompileError as error:
        raise Fault("check", text.name, _said(str(error), text)) from None


def _said(message: str, text: Text) -> list[str]:
    """The compiler's lines, with places of the kernel's own files."""

    def place(found: re.Match[str]) -> str:
        return text.place(int(found[1]), int(found[2]))

    return [re.sub(r"kernel\.metal:(\d+):(\d+)", place, line) for line in message.splitlines()]


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime, loaded so that kernels find its functions and libm's."""

    def build(path: Path) -> None:
        thing = path.with_suffix(".o")
        source = RUNTIME.read_text(encoding="utf-8")
        language = [flag for flag in LANGUAGE if not flag.startswith("-I")]
        compiler()([*language, "-O2", "-fPIC", "-Wall", "-c", "-o", str(thing)], source)
        compiler().link(thing, path)

    if name := ctypes.util.find_library("m"):
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    path = cached(".so", ["runtime", RUNTIME.read_text(encoding="utf-8")], build)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
