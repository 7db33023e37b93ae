"""A GPU that does what the name of a variant says, under the real checker's loop:
``python scripted_gpu.py FOLDER PARENT``.

A name that ends in "once" does it the first time only; "loses" takes the GPU away for good.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from macspec.metal.checker import main
from macspec.metal.faults import FAULT
from macspec.metal.outcomes import Outcome

FOLDER = Path(sys.argv[1])
GOOD = Outcome(None, 1.0, 2.0, 1.9)
_ignoring = []


def check(name: str, copies: int) -> Outcome:
    tried = FOLDER / name
    again = tried.exists()
    with tried.open("a", encoding="utf-8") as file:
        file.write(f"{copies}\n")
    what = name.split()[0]
    if name.endswith("once") and again:
        what = "passes"
    match what:
        case "wrong":
            return Outcome("off by 1.0e-01 of the largest value")
        case "raises":
            raise RuntimeError("[metal::Device] Unable to build metal library from source")
        case "faults":
            raise RuntimeError(f"[METAL] {FAULT}: Caused GPU Timeout Error (00000002)")
        case "suffers":
            raise RuntimeError(
                f"[METAL] {FAULT}: Discarded (victim of GPU error/recovery) "
                "(00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)"
            )
        case "memory":
            raise RuntimeError(f"[METAL] {FAULT}: Insufficient Memory (00000008)")
        case "hangs":
            time.sleep(1000)
        case "dies":
            print("\nlibc++abi: terminating", file=sys.stderr, flush=True)
            os.abort()
        case "ignores":
            _ignoring.append(name)
        case "loses":
            (FOLDER / "lost").touch()
            os.abort()
        case "prints":
            print("a library's chatter", flush=True)
    return GOOD


def answers() -> bool:
    return not _ignoring and not (FOLDER / "lost").exists()


if __name__ == "__main__":
    main(sys.argv[2:], check, answers)
