"""Verdicts on kernels survive whatever the GPU, the user and other processes do, without a lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from macspec.inuse import InUse
from macspec.io import read_json
from macspec.metal import self_check
from macspec.metal.outcomes import LOST, Outcome, Outcomes
from macspec.metal.self_check import Checking

SCRIPT = str(Path(__file__).with_name("scripted_gpu.py"))
GOOD = Outcome(None, 1.0, 2.0, 1.9)
HERE = {"chip": "M9"}


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "TICK", 0.01)


@pytest.fixture
def known(tmp_path: Path) -> Callable[..., Outcomes]:
    """What a new start knows."""
    return lambda boot="one": Outcomes(tmp_path / "outcomes.json", HERE, boot)


def steps(folder: Path, outcomes: Outcomes, *names: str, limit: float = 30.0) -> Iterator[Checking]:
    program = (sys.executable, SCRIPT, str(folder))
    return self_check.self_check([(it, 3) for it in names], outcomes, program=program, limit=limit)


def being_checked(folder: Path, name: str) -> bool:
    """Whether the file says so, as the disk would after a crash."""
    stored = read_json(folder / "outcomes.json")
    return stored is not None and stored["checking"] == name


def tried(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


FATAL = {
    "faults": "the GPU reported a fault ([METAL] Command buffer execution failed",
    "hangs": "it did not end within 3 s, twice",
    "dies": "it ended the program (SIGABRT): libc++abi: terminating, twice",
    "ignores": "the GPU stopped answering, twice",
}


@pytest.mark.parametrize(
    "name",
    ["hangs", "dies", *(pytest.param(it, marks=pytest.mark.slow) for it in ("faults", "ignores"))],
)
def test_what_costs_the_process_is_tried_once_more_and_only_then_remembered(
    tmp_path: Path, known: Callable[..., Outcomes], name: str
) -> None:
    """The variants before and after it keep what they had, whatever happens between."""
    limit = 3.0 if name == "hangs" else 30.0
    list(steps(tmp_path, known(), "before", name, "after", limit=limit))
    found = known().found
    assert found["before"] == found["after"] == GOOD
    assert (found[name].failure or "").startswith(FATAL[name])
    assert tried(tmp_path, name) == 2
    assert tried(tmp_path, "before") == tried(tmp_path, "after") == 1
    # The next start has nothing to do.
    assert list(steps(tmp_path, known(), "before", name, "after")) == []


def test_what_happens_once_is_forgotten(tmp_path: Path, known: Callable[..., Outcomes]) -> None:
    names = [f"{name} once" for name in FATAL if name != "hangs"]
    list(steps(tmp_path, known(), *names))
    assert known().found == dict.fromkeys(names, GOOD)


def test_what_python_sees_is_remembered_at_once(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    names = ("prints", "wrong", "raises", "after")
    done = [step.done for step in steps(tmp_path, known(), *names)]
    assert done == sorted(done)
    found = known().found
    assert found["prints"] == found["after"] == GOOD
    assert found["wrong"].failure == "off by 1.0e-01 of the largest value"
    assert (found["raises"].failure or "").startswith("it does not run on this machine ([metal::")
    assert [tried(tmp_path, name) for name in names] == [1, 1, 1, 1]


@pytest.mark.slow
def test_another_machine_checks_again(tmp_path: Path, known: Callable[..., Outcomes]) -> None:
    list(steps(tmp_path, known(), "passes"))
    other = Outcomes(tmp_path / "outcomes.json", {"chip": "M10"}, "one")
    list(steps(tmp_path, other, "passes"))
    assert tried(tmp_path, "passes") == 2


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    outcomes = Outcomes(tmp_path / "file" / "outcomes.json", HERE, "one")
    list(steps(tmp_path, outcomes, "passes"))
    assert outcomes.found == {"passes": GOOD}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "suffers"])
def test_too_little_memory_and_the_fault_of_another_program_are_no_verdicts(
    tmp_path: Path, known: Callable[..., Outcomes], name: str
) -> None:
    for times in (1, 2):
        list(steps(tmp_path, known(), name, "after"))
        assert known().found == {"after": GOOD}
        assert tried(tmp_path, name) == times


def test_a_lost_gpu_ends_the_check_and_is_blamed_only_when_it_happens_twice(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    outcomes = known()
    list(steps(tmp_path, outcomes, "before", "loses", "after"))
    assert outcomes.cut_short == "the GPU does not answer"
    assert known().found == {"before": GOOD}
    # The next start finds it still lost, then well again, and leaves the suspect for last.
    list(steps(tmp_path, known(), "before", "loses", "after"))
    assert known().losses == {"loses": 1}
    (tmp_path / "lost").unlink()
    list(steps(tmp_path, known(), "before", "loses", "after"))
    assert known().found == {"before": GOOD, "after": GOOD, "loses": Outcome(LOST)}
    assert tried(tmp_path, "loses") == 2


@pytest.mark.parametrize(
    "leave",
    [KeyboardInterrupt, *(pytest.param(it, marks=pytest.mark.slow) for it in (SystemExit, None))],
)
def test_an_interrupt_blames_nothing(
    tmp_path: Path, known: Callable[..., Outcomes], leave: type[BaseException] | None
) -> None:
    """Ctrl-C, the app's end, and a stop of the load that waits for the check."""
    check = steps(tmp_path, known(), "before", "hangs once", "after")
    for _ in check:
        if being_checked(tmp_path, "hangs once"):
            break
    if leave is None:
        check.close()
    else:
        with pytest.raises(leave):
            check.throw(leave)  # type: ignore[attr-defined]
    assert known().found == {"before": GOOD}
    list(steps(tmp_path, known(), "before", "hangs once", "after"))
    assert set(known().found.values()) == {GOOD}


STARTER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_verdicts import Outcomes, HERE, steps
folder = Path(sys.argv[2])
for _ in steps(folder, Outcomes(folder / "outcomes.json", HERE, "one"), "before", "hangs once"):
    pass
"""


def test_a_killed_process_blames_nothing_and_a_second_one_keeps_out(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    program = [sys.executable, "-c", STARTER, str(Path(SCRIPT).parent), str(tmp_path)]
    with subprocess.Popen(program) as other:
        while not being_checked(tmp_path, "hangs once"):
            time.sleep(0.01)
        # Ours sees what is known so far, checks nothing, and marks nothing.
        second = known()
        assert list(steps(tmp_path, second, "before", "hangs once")) == []
        assert second.cut_short == "another program checks kernels now"
        assert known().found == {"before": GOOD}
        os.kill(other.pid, signal.SIGKILL)
    list(steps(tmp_path, known(), "before", "hangs once"))
    assert set(known().found.values()) == {GOOD}
    assert known().losses == {}


def test_a_machine_that_goes_down_twice_in_one_variant_is_not_risked_again(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    for boot in ("one", "two"):
        check = steps(tmp_path, known(boot), "passes", "hangs")
        for _ in check:
            if being_checked(tmp_path, "hangs") and tried(tmp_path, "hangs") > (boot == "two"):
                break
        image = (tmp_path / "outcomes.json").read_bytes()
        check.close()
        # What the disk holds when the power goes.
        (tmp_path / "outcomes.json").write_bytes(image)
    list(steps(tmp_path, known("three"), "passes", "hangs"))
    assert known("three").found == {"passes": GOOD, "hangs": Outcome(LOST)}


def fault(outcomes: Outcomes, *running: str) -> None:
    """In a reply, after a round with another kernel."""
    in_use = InUse(["passes", "before", "after"], outcomes.faults)
    before = in_use.begin()
    in_use.note("before")
    in_use.begin()
    for name in running:
        in_use.note(name)
    in_use.landed(before)
    assert in_use.blame()
    assert not in_use.blame()


def test_what_ran_in_a_fault_of_a_reply_is_checked_again_and_given_up_the_second_time(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    names = ("before", "passes", "after")
    for times in (1, 2):
        list(steps(tmp_path, known(), *names))
        assert known().found == dict.fromkeys(names, GOOD)
        fault(known(), "passes")
        assert tried(tmp_path, "passes") == times
        found = known().found
        assert found.pop("passes", None) == (None if times == 1 else Outcome(LOST))
        assert found == {"before": GOOD, "after": GOOD}
    list(steps(tmp_path, known(), *names))
    assert (tried(tmp_path, "passes"), tried(tmp_path, "before")) == (2, 1)


def test_a_fault_is_not_forgotten_by_a_process_that_checks_meanwhile(
    tmp_path: Path, known: Callable[..., Outcomes]
) -> None:
    list(steps(tmp_path, known(), "passes"))
    check = steps(tmp_path, known(), "passes", "hangs once", "after")
    for _ in check:
        if being_checked(tmp_path, "hangs once"):
            break
    fault(known(), "passes")
    check.close()  # type: ignore[attr-defined]
    assert "passes" not in known().found
