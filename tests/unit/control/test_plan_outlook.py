"""What is said of drafting before the first round."""

from __future__ import annotations

import pytest

from macspec.choices import MAX_DEPTH, METHODS
from macspec.control import OFF, outlook


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("depth", ["auto", 0, 1, MAX_DEPTH])
def test_it_names_what_is_set_and_nothing_else(method: str, depth: int | str) -> None:
    said = outlook(method, depth)
    off = method == "off" or depth == 0
    assert (said == OFF.why) == off
    if not off:
        assert said.startswith("waiting for the first round: ")
        assert "off" not in said
        assert (f"depth {depth}" in said) == isinstance(depth, int)
        assert (method in said) == (method != "auto")
