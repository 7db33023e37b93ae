"""Tasks from this user's own chats. Nothing of them leaves the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..conversation import Message
from ..errors import BadOptionError
from ..store import Chat, Store
from ..store.records import ASSISTANT, OPEN, RAW, USER
from ..store.records import Message as Stored
from .task import REPLAY, Task
from .workloads import Count, fits

WORKLOAD = "own chats"

UNKNOWN = "und"
"""The code of a language that nobody knows."""

SLACK = 32
"""Tokens that a reply may be longer than the stored one."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What there is to measure on."""

    tasks: list[Task]
    left_out: int
    """Replies that no longer fit into the target's context."""


def replayed(
    store: Store,
    *,
    count: Count,
    room: int,
    most: int = 16,
    of_each: int = 2,
    force: bool = False,
) -> Replayed:
    """Replies that are asked for once more: the newest conversations first.

    Of a conversation, as it is shown, the last replies are taken, each with all that was said
    before it.

    Args:
        count: tokens of a conversation.
        room: positions of the target's context.
        most: at most so many replies.
        of_each: at most so many of one conversation.
        force: take the stored replies as recorded answers.

    Raises:
        BadOptionError: there are no chats, or none that fits.
    """
    tasks: list[Task] = []
    left_out = 0
    for chat in store.chats():
        taken = 0
        for task in _of_chat(chat, store.thread(chat.id), count, force):
            if taken == of_each or len(tasks) == most:
                break
            if fits(task, count, room):
                tasks.append(task)
                taken += 1
            else:
                left_out += 1
    if not tasks and left_out:
        raise BadOptionError(
            f"none of the stored chats fits the context of {room} positions: choose another pair"
        )
    if not tasks:
        raise BadOptionError(
            "there are no stored chats to replay: have one, or name a file with --prompts"
        )
    return Replayed(tasks, left_out)


def _of_chat(chat: Chat, thread: list[Stored], count: Count, force: bool) -> Iterator[Task]:
    """The replies of a conversation, the last one first."""
    for at in range(len(thread) - 1, 0, -1):
        reply, asked = thread[at], thread[at - 1]
        if reply.role != ASSISTANT or reply.state == OPEN or not reply.text.strip():
            continue
        if asked.role not in (USER, RAW) or not asked.text.strip():
            continue
        raw = asked.role == RAW
        before = [asked] if raw else thread[:at]
        messages: list[Message] = [{"role": _role(it), "content": it.text} for it in before]
        if chat.system and not raw:
            messages.insert(0, {"role": "system", "content": chat.system})
        length = count([{"role": "user", "content": reply.text}])
        yield Task(
            id=f"{chat.id}-{reply.id}",
            workload=WORKLOAD,
            messages=tuple(messages),
            max_tokens=length if force else length + SLACK,
            forced=reply.text if force else None,
            language=UNKNOWN,
            source=REPLAY,
            raw=raw,
        )


def _role(message: Stored) -> str:
    return ASSISTANT if message.role == ASSISTANT else USER
