"""Kernels run on the CPU through ``harness``."""

from __future__ import annotations

import pytest
from harness.compiler import forget_old


def pytest_sessionstart(session: pytest.Session) -> None:
    forget_old()
