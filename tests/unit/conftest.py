"""The built-in pair in the precision in which equality is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from tinymodels import noisy

from macspec import load_pair
from macspec.models import Pair


@pytest.fixture(scope="session")
def pocket() -> Pair:
    """The built-in target and draft model in float32, with a context that a test can fill."""
    pair = load_pair(draft="built-in", context=512)
    assert pair.draft is not None
    for model in (pair.target, pair.draft):
        module: Any = model.module
        module.set_dtype(mx.float32)
        mx.eval(module.parameters())
    return pair


@pytest.fixture(scope="session")
def small(pocket: Pair) -> Pair:
    """Its draft model as a target, with a draft that is sometimes right: a tenth of the time."""
    assert pocket.draft is not None
    module = pocket.draft.module
    target = replace(pocket.target, module=module)
    return replace(pocket, target=target, draft=replace(pocket.draft, module=noisy(module)))
