"""Every kernel broken on purpose is noticed, and every intact one is not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Case, Mutant, run
from harness.mutants import caught

FILES = sorted(path.stem for path in (Path(__file__).parent / "mutants").glob("[!_]*.py"))
FEWEST = 130


def mutants(name: str) -> Any:
    """The module of one kernel's mutants."""
    return importlib.import_module(f"mutants.{name}")


def every() -> Iterator[Any]:
    """All of them; five of six are left to the slow run."""
    for name in FILES:
        for number, mutant in enumerate(mutants(name).MUTANTS):
            marks = pytest.mark.slow if number % 6 else ()
            yield pytest.param(name, mutant, id=f"{name}-{mutant.name}", marks=marks)


def cases(name: str, made: dict[str, list[Case]] = {}) -> list[Case]:  # noqa: B006
    """A file's cases, made once."""
    if name not in made:
        made[name] = list(mutants(name).cases())
    return made[name]


@pytest.mark.parametrize("name", FILES)
def test_intact(name: str) -> None:
    for case in cases(name):
        outputs = run(case.kernel, case.arrays, case.launch, same_bits=case.same_bits)
        assert case.right(outputs)


@pytest.mark.parametrize(("name", "mutant"), list(every()))
def test_caught(name: str, mutant: Mutant) -> None:
    assert caught(mutant, cases(name)), "nothing noticed it"


def test_enough() -> None:
    names = [mutant.name for name in FILES for mutant in mutants(name).MUTANTS]
    assert len(names) >= FEWEST
