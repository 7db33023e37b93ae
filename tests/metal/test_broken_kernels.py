"""Every kernel broken on purpose is noticed, and every intact one is not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Case, Fault, Mutant, run
from harness.inline import with_text
from harness.mutants import caught
from harness.running import inspect, prepare

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


ALONE = {"selector_walk", "accept_walk", "accept_block", "draft_sample"}
"""Kernels that run in one threadgroup."""
TOUCHES = {
    "writes": "if (thread_index_in_threadgroup == 0) {0}[0] = {{}};\n",
    "reads": "if (thread_index_in_threadgroup == 0) {0}[1] = {0}[0];\n",
}


def several(name: str) -> Iterator[Case]:
    """A case of each kernel that runs in more than one threadgroup."""
    seen = set[str]()
    for case in cases(name):
        grid, group = case.launch.grid, case.launch.threadgroup
        if case.kernel.name not in seen and any(a > b for a, b in zip(grid, group, strict=True)):
            seen.add(case.kernel.name)
            yield case


@pytest.mark.parametrize("touches", TOUCHES)
@pytest.mark.parametrize("name", FILES)
def test_what_another_threadgroup_wrote_is_not_touched(name: str, touches: str) -> None:
    """Threadgroups are not ordered: each kernel, with a first output that all of them touch."""
    for case in several(name):
        kernel = case.kernel
        first = TOUCHES[touches].format(kernel.outputs[0])
        broken = with_text(kernel, kernel.header, kernel.source + first)
        with pytest.raises(Fault, match=r"race: .*, with thread \d+ of threadgroup \d") as fault:
            inspect(prepare(broken, case.arrays, case.launch))
        assert fault.value.layer == "run"
    alone = {case.kernel.name for case in cases(name)} - {it.kernel.name for it in several(name)}
    assert alone <= ALONE
