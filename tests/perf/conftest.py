"""The built-in pair in the precision in which equality is exact."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from macspec import load_pair
from macspec.models import Pair


@pytest.fixture(scope="session")
def pocket() -> Pair:
    """The built-in target and draft model in float32."""
    pair = load_pair(draft="built-in", context=512)
    for model in filter(None, (pair.target, pair.draft)):
        module: Any = model.module
        module.set_dtype(mx.float32)
        mx.eval(module.parameters())
    return pair
