"""The workloads that ship."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ..assets import prompt_files
from ..conversation import Message
from ..errors import BadOptionError
from .longcontext import LENGTHS, long_name, long_task
from .task import Task

Count = Callable[[Sequence[Message]], int]
"""Tokens of a conversation, in the target's template and tokenizer."""

QUICK = ("chat", "maths", "code-edit", "json")
"""The workloads of a short run: what a small model can write, and what it cannot."""


def names() -> list[str]:
    """Every workload that ships, the long contexts last."""
    return [*prompt_files(), *map(long_name, LENGTHS)]


def about(name: str) -> str:
    """One line on a workload."""
    if name in map(long_name, LENGTHS):
        return "finding entries in a long log and repeating them"
    return str(_file(name)["about"])


def shipped(
    chosen: Collection[str] | None = None,
    *,
    count: Count | None = None,
    room: int | None = None,
    force: bool = True,
    most: int | None = None,
) -> list[Task]:
    """The tasks of workloads that ship, in a fixed order.

    Args:
        chosen: names of workloads; None: all of them.
        count: counts a prompt's tokens; long contexts are made with it, and left out without.
        room: positions of the target's context; longer prompts are left out.
        force: take the recorded answers of tasks that a small model cannot write.
        most: at most so many tasks of each workload.

    Raises:
        BadOptionError: a name that is none.
    """
    for name in chosen or ():
        if name not in names():
            raise BadOptionError(f"there is no workload {name!r}; there are {', '.join(names())}")
    tasks: list[Task] = []
    for name in names():
        if chosen is not None and name not in chosen:
            continue
        found = [
            task
            for task in _tasks(name, force=force, count=count, room=room)
            if room is None or count is None or fits(task, count, room)
        ]
        tasks += found[:most]
    return tasks


def fits(task: Task, count: Count, room: int) -> bool:
    """Whether a prompt leaves room for its reply; of a raw text the template's share is counted."""
    return count(task.messages) + task.max_tokens <= room


def _tasks(name: str, *, force: bool, count: Count | None, room: int | None) -> Iterator[Task]:
    for length in LENGTHS:
        if name == long_name(length):
            if count is not None and (room is None or length <= room):
                yield long_task(length, count, force=force)
            return
    whole = _file(name)
    for number, entry in enumerate(whole["tasks"], 1):
        answer = entry["answer"].strip() if "answer" in entry else None
        turns = entry.get("messages") or [{"role": "user", "content": entry["prompt"].strip()}]
        yield Task(
            id=f"{name}-{number}",
            workload=name,
            messages=tuple(turns),
            max_tokens=entry.get("max_tokens", whole["max_tokens"]),
            forced=answer if force else None,
            language=entry.get("language", "en"),
        )


def _file(name: str) -> dict[str, Any]:
    return tomllib.loads(prompt_files()[name].read_text(encoding="utf-8"))
