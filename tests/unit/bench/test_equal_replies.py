"""The equality column: what is compared, and how a fork is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_arms import Clock, ScriptedArm, questions

from macspec.bench.equality import Compared, Equality, compare, judge
from macspec.bench.questions import Question, ready
from macspec.bench.sample import Sample
from macspec.bench.tasks import Task
from macspec.divergence import Divergence
from macspec.models import Pair
from macspec.sampling import Sampling

FORK = Divergence(2, 1, 2, 0.5, 0.1)
EQUALS = {"plain": True, "keyed": True, "block": False}


def sample(arm: str, ids: tuple[int, ...], temperature: float = 0.0, **more: object) -> Sample:
    (question,) = questions(1)
    sampling = Sampling(temperature=temperature)
    written = ScriptedArm(arm, Clock(), ids=ids).write(question, sampling, True)
    made = Sample(arm, "chat-1", "chat", False, temperature, 0, 1, 0.0, written)
    return replace(made, **more)  # type: ignore[arg-type]


def found(*samples: Sample) -> list[Compared]:
    return list(compare(samples, "plain", EQUALS, lambda *_: FORK))


@pytest.mark.parametrize(
    ("arm", "temperature", "compared"),
    [("keyed", 0.0, True), ("keyed", 0.7, True), ("block", 0.0, True), ("block", 0.7, False)],
)
def test_what_should_be_equal_is_compared(arm: str, temperature: float, compared: bool) -> None:
    pair = sample("plain", (1, 2), temperature), sample(arm, (1, 2), temperature)
    assert bool(found(*pair)) is compared


def test_a_fork_is_found_and_counted() -> None:
    (one,) = found(sample("plain", (1, 2, 3)), sample("keyed", (1, 2, 4)))
    assert one.fork == FORK
    assert Equality.of([one.fork]) == Equality(1, 0, 0)
    assert Equality.of([one.fork]).differ == 1
    assert Equality.of([replace(FORK, margin=0.05), one.fork, None]) == Equality(3, 1, 1)


def test_what_cannot_tell_is_left_out() -> None:
    plain = sample("plain", (1, 2))
    assert not found(plain, sample("block", ()))
    assert not found(plain, sample("keyed", (1, 2), forced=True))
    assert not found(plain, sample("other", (1, 2)))
    assert not found(sample("keyed", (1, 2)))
    cut = sample("keyed", (1,))
    assert not found(plain, replace(cut, written=replace(cut.written, reason="interrupted")))


def test_the_target_itself_judges(pocket: Pair) -> None:
    task = Task("chat-1", "chat", ({"role": "user", "content": "Hello, how are you?"},), 8)
    (question,), _ = ready([task], pocket)
    explained = judge(pocket, [question])
    fork = explained(sample("keyed", (5, 9)), (5, 7), 1)
    assert (fork.plain, fork.speculative) == (7, 9)
    assert fork.margin is not None
    assert fork.margin > 0
    ended = explained(sample("keyed", (5,)), (5, 7), 1)
    assert ended.margin is None
    assert isinstance(question, Question)
