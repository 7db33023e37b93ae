"""Kernels run on the CPU through ``harness``."""

from __future__ import annotations

import pytest
import quantized
from harness.compiler import forget_old

from macspec.metal.dispatch import MetalKernels
from macspec.models import Pair


def pytest_sessionstart(session: pytest.Session) -> None:
    forget_old()


@pytest.fixture(scope="session")
def pair() -> Pair:
    return quantized.pair()


@pytest.fixture(scope="session")
def kernels(pair: Pair) -> MetalKernels:
    """All of them, for ``pair``."""
    return quantized.all_faster(pair)
