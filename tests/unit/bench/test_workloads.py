"""The workloads that ship: whole, of several kinds and languages, and made to fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from macspec.assets import folder
from macspec.bench.questions import answer_ids, prompt_ids
from macspec.bench.tasks import (
    LENGTHS,
    QUICK,
    Task,
    entry,
    long_name,
    long_task,
    most_of_each,
    names,
    shipped,
)
from macspec.errors import BadOptionError
from macspec.models import Pair
from macspec.models.template import Template
from macspec.prompt import Message, checked_messages


def words(messages: Sequence[Message]) -> int:
    """A tokenizer that everybody has."""
    return sum(len(re.findall(r"\w+|[^\w\s]", message["content"])) for message in messages)


def test_every_task_is_whole() -> None:
    tasks = shipped(count=words)
    assert len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        checked_messages(task.messages)
        assert task.messages[-1]["role"] == "user"
        assert task.max_tokens > 0
        assert all(turn["content"] == turn["content"].strip() for turn in task.messages)
        if task.forced is not None:
            assert task.forced == task.forced.strip()
    assert {task.workload for task in tasks} == set(names())


def test_there_are_many_kinds_and_languages() -> None:
    tasks = shipped()
    assert {"code-edit", "summary", "retrieval", "maths", "chat", "story", "json"} <= set(names())
    assert {"en", "de", "fr", "es", "it", "zh", "ja"} <= {task.language for task in tasks}
    forced = {task.workload for task in tasks if task.forced is not None}
    assert forced == {"code-edit", "summary", "retrieval", "json"}
    assert set(QUICK) <= set(names())
    assert forced & set(QUICK)
    assert set(QUICK) - forced


def test_every_file_of_prompts_is_a_workload() -> None:
    found = {file.stem for file in (folder() / "prompts").glob("*.toml")}
    assert found - {"station"} == {name for name in names() if not name.startswith("long-")}


def test_workloads_can_be_chosen_and_cut() -> None:
    assert [task.id for task in most_of_each(shipped(["maths", "chat"]), 2)] == [
        "chat-1", "chat-2", "maths-1", "maths-2",
    ]  # fmt: skip
    assert shipped(["json"], force=False)[0].forced is None
    assert shipped(["long-1k"]) == []
    with pytest.raises(BadOptionError, match="there is no workload 'chess'; there are booking, "):
        shipped(["chess"])


def test_what_is_too_long_is_left_out() -> None:
    room = 700
    tasks = shipped(count=words, room=room)
    assert 0 < len(tasks) < len(shipped(count=words))
    assert all(words(task.messages) + task.max_tokens <= room for task in tasks)


@pytest.mark.parametrize("length", LENGTHS)
def test_long_contexts_are_as_long_as_they_say(length: int) -> None:
    task = long_task(length, words, force=True)
    assert task.forced is not None
    size = words(task.messages) + words([{"content": task.forced}])
    assert length - max(words([{"content": entry(day)}]) for day in range(-9, 9)) - 2 < size
    assert size <= length
    assert task.max_tokens == words([{"content": task.forced}])
    assert all(line in task.messages[0]["content"].split("\n") for line in task.forced.split("\n"))
    assert long_task(length, words, force=True) == task
    assert long_task(length, words, force=False).forced is None


def test_no_day_of_the_log_is_like_another() -> None:
    log = [entry(day) for day in range(-200, 200)]
    assert len(set(log)) == len(log)
    assert all(a[:10] < b[:10] for a, b in pairwise(log))
    assert "{" not in "".join(log)


def test_names_of_lengths() -> None:
    assert [long_name(length) for length in LENGTHS] == [
        "long-1k", "long-2k", "long-4k", "long-8k", "long-16k",
    ]  # fmt: skip


def test_the_built_in_pair_can_be_asked_all_that_fits(pocket: Pair) -> None:
    template = Template(pocket)

    def count(messages: Sequence[Message]) -> int:
        return len(template.tokens(messages))

    tokenizer: Any = pocket.target.tokenizer
    for task in shipped(count=count, room=pocket.context):
        ids = prompt_ids(task, template)
        assert len(ids) + task.max_tokens <= pocket.context
        answer = answer_ids(task, pocket)
        assert (answer is None) == (task.forced is None)
        if answer is not None and task.forced is not None:
            assert len(answer) <= task.max_tokens
            assert task.forced.startswith(tokenizer.decode(answer).strip()[:-3])


def test_a_digest_tells_tasks_apart_and_says_nothing_of_private_ones() -> None:
    task = Task("1", "chat", ({"role": "user", "content": "a"},), 5)
    same = Task("2", "other", ({"role": "user", "content": "a"},), 5, language="de", source="f")
    assert task.digest == same.digest
    assert task.digest is not None
    for changed in (
        Task("1", "chat", ({"role": "user", "content": "b"},), 5),
        Task("1", "chat", ({"role": "user", "content": "a"},), 6),
        Task("1", "chat", ({"role": "user", "content": "a"},), 5, forced="x"),
        Task("1", "chat", ({"role": "user", "content": "a"},), 5, raw=True),
    ):
        assert changed.digest != task.digest
    assert Task("1", "chat", task.messages, 5, source="replay").digest is None
