"""Which back end computes, by MLX's default device."""

from __future__ import annotations

import mlx.core as mx
import pytest

from macspec import device


@pytest.mark.parametrize(
    ("gpu", "metal", "name"),
    [(True, True, "Metal"), (True, False, "CUDA"), (False, True, "CPU"), (False, False, "CPU")],
)
def test_the_backend(monkeypatch: pytest.MonkeyPatch, gpu: bool, metal: bool, name: str) -> None:
    default = mx.Device(mx.gpu if gpu else mx.cpu)
    monkeypatch.setattr(device.mx, "default_device", lambda: default)
    monkeypatch.setattr(device.mx.metal, "is_available", lambda: metal)
    assert device.backend() == name
    assert device.on_gpu() == gpu
    assert device.on_metal() == (name == "Metal")
