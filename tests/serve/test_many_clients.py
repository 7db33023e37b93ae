"""Many clients at once, some of which leave: every finished reply is what it is alone."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from serving import eventually

from macspec.worker import ProcessEngine, Status

CLIENTS, REPLIES, LEAVING = 8, 200, 50

PROMPTS = ("Hello!", "Tell me about cats.", "word " * 300, "What is 2+3?", "Go on with the story.")

REQUESTS: list[dict[str, Any]] = [
    {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": size,
        **sampling,
    }
    for text in PROMPTS
    for size, sampling in (
        (6, {"temperature": 0}),
        (14, {"temperature": 0.9, "seed": 3}),
        (22, {"temperature": 1.1, "seed": 4, "top_p": 0.9}),
    )
]


def create(client: OpenAI, number: int, **more: Any) -> Any:
    return client.chat.completions.create(model="macspec", **REQUESTS[number], **more)


def held(engine: ProcessEngine) -> tuple[int, int, int]:
    """Open files of the child and of this process, and bytes of the child's arrays."""
    status = engine.status().result(60)
    assert isinstance(status, Status)
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (engine.pid, "self")]
    return files[0], files[1], status.memory


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_200_requests_of_8_clients_of_which_50_are_left(
    client: OpenAI, real_engine: ProcessEngine
) -> None:
    off = {"extra_body": {"macspec": {"method": "off"}}}
    alone = [
        create(client, number, **off).choices[0].message.content for number in range(len(REQUESTS))
    ]
    dice = random.Random(7)
    jobs = [dice.randrange(len(REQUESTS)) for _ in range(REPLIES)]
    leaving = set(dice.sample(range(len(jobs)), LEAVING))
    wrong: list[tuple[int, str]] = []

    def job(at: int) -> None:
        number = jobs[at]
        if at in leaving:
            with create(client, number, stream=True) as stream:
                for _ in zip(range(at % 4), stream, strict=False):
                    pass
        else:
            said = create(client, number).choices[0].message.content
            if said != alone[number]:
                wrong.append((number, said))

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(job, range(REPLIES // 2)))
        before = held(real_engine)
        list(pool.map(job, range(REPLIES // 2, REPLIES)))
    assert wrong == []

    def bounded() -> bool:
        theirs, own, memory = held(real_engine)
        # Either end of each connection is here. Sixteen conversations are kept, whichever they are.
        return theirs <= before[0] and own <= before[1] + 2 * CLIENTS and memory <= 1.2 * before[2]

    assert eventually(bounded), (before, held(real_engine))
