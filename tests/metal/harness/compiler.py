"""Finds a clang that knows Metal's types, compiles and links with it, and keeps what it built."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HERE = Path(__file__).resolve().parent
SHIM = HERE / "shim"
CACHE = platformdirs.user_cache_path("macspec") / "metal-harness"
KEPT = 14 * 86400
"""Seconds that an unused build is kept."""

MACOS = sys.platform == "darwin"
MACHINE = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}.get(
    platform.machine().lower(), ""
)
TARGET = (
    f"{'arm64' if MACHINE == 'aarch64' else MACHINE}-apple-macosx13.0"
    if MACOS
    else f"{MACHINE}-linux-gnu"
)
LANGUAGE = (
    f"--target={TARGET}",
    *(("-march=x86-64",) if MACHINE == "x86_64" else ()),
    "-std=c++17",
    "-x",
    "c++",
    "-nostdinc",
    "-nostdinc++",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    # No float behind a half's or bfloat's back.
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-Wno-duplicate-decl-specifier",
    "-Wno-unused-value",
    "-Wno-psabi",
    f"-I{SHIM}",
)
PROBE = "#include <metal_stdlib>\nfloat f(bfloat a, half b) { return metal::exp((float)a + b); }\n"


class CompileError(Exception):
    """What the compiler said against a text."""


@dataclass(frozen=True)
class Compiler:
    """Command lines up to the arguments."""

    clang: tuple[str, ...]
    linker: tuple[str, ...]

    def __call__(self, arguments: Sequence[str], text: str) -> str:
        """Compile ``text``; returns the warnings.

        Raises:
            CompileError: with what the compiler said.
        """
        return _run([*self.clang, *arguments, "-"], text)

    def link(self, thing: Path, shared_object: Path) -> None:
        """One object file to a shared object whose open names the runtime and libm fill."""
        _run([*self.linker, str(thing), "-o", str(shared_object)], "")


def _run(command: list[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
    return done.stderr


@functools.cache
def compiler() -> Compiler:
    """PyPI's ziglang, else a clang of 17 or later on the PATH.

    ``zig clang`` and ``zig ld.lld`` are LLVM's own programs; unlike ``zig c++`` they build no C
    library on first use.

    Raises:
        RuntimeError: there is neither.
    """
    if not MACHINE:
        raise RuntimeError(f"no fiber switch for {platform.machine()}: x86-64 and arm64 only")
    candidates = []
    package = importlib.util.find_spec("ziglang")
    if package and package.origin:
        zig = str(Path(package.origin).parent / "zig")
        undefined = "-Wl,-undefined,dynamic_lookup"
        linker = (zig, "cc", "-shared", undefined) if MACOS else (zig, "ld.lld", "-shared")
        candidates.append(Compiler((zig, "clang"), linker))
    for name in ("clang", *(f"clang-{version}" for version in range(25, 16, -1))):
        if path := shutil.which(name):
            flag = "-Wl,-undefined,dynamic_lookup" if MACOS else "-nostdlib"
            candidates.append(Compiler((path,), (path, "-shared", flag)))
    for candidate in candidates:
        try:
            candidate([*LANGUAGE, "-fsyntax-only"], PROBE)
        except (CompileError, OSError):
            continue
        return candidate
    raise RuntimeError("tests/metal needs ziglang or clang 17: pip install -e '.[test]'")


@functools.cache
def _shim_key() -> str:
    files = sorted(path for path in SHIM.rglob("*") if path.is_file())
    return repr([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


def cached(suffix: str, key: Sequence[object], build: Callable[[Path], None]) -> Path:
    """The file that ``build`` writes to the path it is given; built once for a key."""
    parts = repr([compiler(), LANGUAGE, _shim_key(), *key])
    path = CACHE / f"{hashlib.sha256(parts.encode()).hexdigest()[:24]}{suffix}"
    if path.exists():
        os.utime(path)
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        unfinished = Path(folder) / path.name
        build(unfinished)
        os.replace(unfinished, path)
    return path


def forget_old() -> None:
    """Delete builds that nobody used for two weeks."""
    if not CACHE.is_dir():
        return
    for path in CACHE.iterdir():
        with suppress(FileNotFoundError):  # another run's compilation has just ended
            if time.time() - path.stat().st_mtime < KEPT:
                continue
            if path.is_dir():  # of a compilation that was stopped
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
