"""What a product's call costs is measured of macspec's kernels, at every place."""

from __future__ import annotations

import hostcost
import pytest


def test_costs_are_of_macspecs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are built, and none is left to MLX."""
    monkeypatch.setattr(hostcost, "CALLS", 2)
    monkeypatch.setattr(hostcost, "REPEATS", 1)
    found = dict(hostcost.costs())
    assert [(it.kernel, it.rows) for it in found] == [it[:2] for it in hostcost.PLACES]
    assert all(cost > 0 for costs in found.values() for cost in costs)
