"""NVIDIA cards: NVML's count of energy, in millijoules since the driver was loaded.

Volta and later; the counter moves about every 100 ms. Through nvidia-ml-py, where it is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .source import PowerError, Rail, Reading


class Nvml:
    """One rail for each card.

    Args:
        library: gives the module ``pynvml``; raises ImportError where there is none.
    """

    name = "nvml"
    basis = "the whole card, as its driver counts"

    def __init__(self, library: Callable[[], Any] | None = None) -> None:
        self._import = library or (lambda: import_module("pynvml"))
        self._library: Any = None
        self._cards: dict[str, Any] = {}
        self.rails: tuple[Rail, ...] = ()

    def available(self) -> str | None:
        if self._cards:
            return None
        try:
            nvml = self._import()
        except ImportError:
            return "nvidia-ml-py is not installed: pip install nvidia-ml-py"
        try:
            nvml.nvmlInit()
            self._library = nvml
            count = nvml.nvmlDeviceGetCount()
            cards = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
            for card in cards:
                nvml.nvmlDeviceGetTotalEnergyConsumption(card)
        except nvml.NVMLError as error:
            self.close()
            return f"NVIDIA's driver counts no energy here: {error}"
        if not cards:
            self.close()
            return "there is no NVIDIA card"
        names = ["gpu"] if count == 1 else [f"gpu{number}" for number in range(count)]
        self._cards = dict(zip(names, cards, strict=True))
        self.rails = tuple(map(Rail, names))
        return None

    def read(self) -> Reading:
        nvml = self._library
        if nvml is None:
            raise PowerError("the source is closed")
        try:
            joules = {
                name: nvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000
                for name, card in self._cards.items()
            }
        except nvml.NVMLError as error:
            raise PowerError(str(error)) from None
        return Reading(time.monotonic(), joules)

    def close(self) -> None:
        nvml, self._library, self._cards = self._library, None, {}
        if nvml is not None:
            nvml.nvmlShutdown()
