"""What speculation saves, over rails that were measured in both modes."""

from __future__ import annotations

import json

import pytest

from macspec.power import ByMode, Energy


def energy(tokens: int, reason: str | None = None, **rails: float) -> Energy:
    counted = () if reason is not None else tuple(rails)
    return Energy(10.0, tokens, "scripted", "", rails, counted, {}, {}, reason)


def test_the_means_are_over_all_tokens_of_a_mode() -> None:
    modes = ByMode()
    modes.add(energy(10, gpu=100.0), speculative=False)
    modes.add(energy(30, gpu=100.0), speculative=False)
    modes.add(energy(40, gpu=120.0), speculative=True)
    assert modes.compared() == (pytest.approx(5), pytest.approx(3))
    assert modes.joules_per_token(speculative=True) == pytest.approx(3)


def test_only_common_rails_are_compared() -> None:
    modes = ByMode()
    modes.add(energy(10, gpu=50.0, cpu=1000.0), speculative=False)
    modes.add(energy(10, gpu=40.0), speculative=True)
    assert modes.compared() == (pytest.approx(5), pytest.approx(4))


def test_without_common_rails_each_mode_has_its_own() -> None:
    modes = ByMode()
    assert modes.compared() == (None, None)
    modes.add(energy(10, gpu=50.0), speculative=False)
    modes.add(energy(10, "the machine slept", gpu=1.0), speculative=True)
    modes.add(energy(0, gpu=1.0), speculative=True)
    assert modes.compared() == (5, None)
    modes.add(energy(10, cpu=60.0), speculative=True)
    assert modes.compared() == (5, 6)


def test_without_tokens_there_is_nothing_per_token() -> None:
    assert energy(0, gpu=5.0).joules == 5.0
    assert energy(0, gpu=5.0).joules_per_token is None


def test_an_idle_machine_takes_no_less_than_nothing() -> None:
    idle = Energy(10.0, 5, "", "", {"gpu": 20.0}, ("gpu",), {}, {"gpu": 3.0})
    assert idle.net_joules == 0.0


def test_it_goes_into_json() -> None:
    record = json.loads(json.dumps(energy(10, gpu=50.0).as_dict()))
    assert record["joules_per_token"] == 5.0
    assert record["counted"] == ["gpu"]
    assert json.loads(json.dumps(energy(1, "why", gpu=1.0).as_dict()))["joules"] is None
