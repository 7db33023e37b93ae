"""Kernels that have a fault in a reply, and an engine with them as a child:
``python failingkernels.py HOW FAULTS ARGUMENTS``."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from macspec import decode
from macspec.inuse import InUse
from macspec.kernels import Kernels
from macspec.metal.faults import FAULT
from macspec.worker import child, engine

NAMES = ("plain", "chain", "idle")
TIMEOUT = f"[METAL] {FAULT}: Caused GPU Timeout Error (00000002:kIOGPUCommandBuffer)."
MESSAGES = {
    "suffers": f"[METAL] {FAULT}: Discarded (victim of GPU error) (00000005:InnocentVictim).",
    "starves": f"[METAL] {FAULT}: Insufficient Memory (00000008:OutOfMemory).",
}


class Failing(Kernels):
    """MLX's, one launch of which goes wrong.

    Args:
        how: spoils (the result can be read, then MLX raises), suffers or starves (the same, by the
            fault of another program or for want of memory), unbuilt (MLX raises at once), loses
            (as spoils, and the GPU is gone), dies or hangs.
    """

    def __init__(self, how: str, faults: Path | None = None, at: int = 4) -> None:
        super().__init__("scripted", in_use=InUse(NAMES, faults))
        self.how, self.left = how, at
        self._retired = self._spoiled = False

    def accept(self, *given: Any) -> Any:
        verdict = super().accept(*given)
        if self._retired:
            return verdict
        self.in_use.note("chain" if given[3].shape[0] else "plain")
        self.left -= 1
        if self.left:
            return verdict
        if self.how == "dies":
            os.abort()
        if self.how == "hangs":
            time.sleep(1000)
        if self.how == "unbuilt":
            raise RuntimeError("[metal::Device] Unable to load kernel")
        self._spoiled = True
        return replace(verdict, accepted=verdict.accepted * 0, token=verdict.token * 0 + 7)

    def check(self) -> None:
        if self._spoiled:
            self._spoiled = False
            raise RuntimeError(MESSAGES.get(self.how, TIMEOUT))
        super().check()

    def retire(self) -> None:
        self._retired = True


def main(how: str, faults: str, *arguments: str) -> None:
    def kernels_for(pair: Any, mode: str, *more: Any, **options: Any) -> Kernels:
        return Kernels() if mode == "off" else Failing(how, Path(faults))

    engine.kernels_for = kernels_for  # type: ignore[assignment]
    if how == "loses":
        decode.gpu_answers = lambda: False
    child.main(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
