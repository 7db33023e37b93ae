"""Whatever is called in whatever order, every call is answered or refused."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from children import SCRIPTED, alive

from macspec.worker import Call, Failed, PairChoice, ProcessEngine, ReplyRequest

TARGETS = ["one", "two", "three", "broken", "slow", "crash"]
PROMPTS = ["hello", "slowly", "wide", "fail", "die", "slowly die"]


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(0, 40), *(pytest.param(seed, 300, marks=pytest.mark.slow) for seed in (1, 2))],
)
def test_a_random_walk_never_hangs(tmp_path: Path, seed: int, calls: int) -> None:
    choice = random.Random(seed)
    engine = ProcessEngine(program=SCRIPTED, log=tmp_path / "engine.log")
    made: list[Call] = []
    seen: set[int] = set()

    def load() -> None:
        made.append(engine.load(PairChoice(choice.choice(TARGETS), choice.choice([None, "draft"]))))

    def reply() -> None:
        request = ReplyRequest(choice.choice(PROMPTS), max_tokens=choice.randrange(1, 60))
        made.append(engine.reply(request))

    def tune() -> None:
        made.append(engine.tune(depth=choice.choice([0, 3, "auto", 99])))

    def status() -> None:
        made.append(engine.status())

    def stop() -> None:
        if made:
            choice.choice(made[-5:]).stop()

    def await_one() -> None:
        if made:
            made[-1].result(60)

    def read_some() -> None:
        for call in made[-3:]:
            if call.done:
                list(call)

    def kill() -> None:
        if (pid := engine.pid) is not None:
            with suppress(ProcessLookupError):  # "die" may have ended it just now
                os.kill(pid, signal.SIGKILL)

    steps = {
        **{reply: 8, tune: 5, status: 4, load: 3},
        **{stop: 4, engine.interrupt: 3, await_one: 4, read_some: 2, kill: 1},
    }
    for step in choice.choices(list(steps), list(steps.values()), k=calls):
        step()
        if (pid := engine.pid) is not None:
            seen.add(pid)
    for call in made:
        answer = call.result(60)
        if isinstance(answer, Failed):
            assert answer.message
            assert answer.kind in ("refused", "error", "crashed", "stopped")
    engine.close()
    assert not any(map(alive, seen))
