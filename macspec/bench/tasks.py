"""What is asked in a measurement: workloads that ship, long contexts, and one's own chats."""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

from ..assets import folder, prompt_files
from ..errors import BadOptionError
from ..prompt import Message
from ..store import Chat, Store
from ..store.records import ASSISTANT, OPEN, RAW, USER
from ..store.records import Message as Stored

OWN = "macspec"
"""The source of the tasks that ship."""

REPLAY = "replay"
"""The source of tasks from this user's own chats."""


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt, and how far it is answered."""

    id: str
    """Unique within its source. It reveals nothing of the text."""
    workload: str
    """The kind of task; the report has a row for each."""
    messages: tuple[Message, ...]
    """The conversation up to the user's turn that is answered, each with role and content."""
    max_tokens: int
    """Longest reply."""
    forced: str | None = None
    """The recorded answer that is decoded along, whatever the target says; None: it writes."""
    language: str = "en"
    """Of the reply: its code in ISO 639, ``und`` if unknown."""
    source: str = OWN
    """``OWN``, ``REPLAY`` or a file's name."""
    raw: bool = False
    """The only message is a text to continue as it is, without a chat template."""
    then: tuple[str, ...] = ()
    """The user's later turns, each to be asked after the reply to the one before."""

    @property
    def digest(self) -> str | None:
        """Tells whether two reports asked the same; None for a user's own chats."""
        if self.source == REPLAY:
            return None
        whole = [list(map(dict, self.messages)), self.max_tokens, self.forced, self.raw, self.then]
        text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


Count = Callable[[Sequence[Message]], int]
"""Tokens of a conversation, in the target's template and tokenizer."""

QUICK = ("chat", "maths", "code-edit", "json")
"""The workloads of a short run: what a small model can write, and what it cannot."""


def names() -> list[str]:
    """Every workload that ships, the long contexts last."""
    return [*prompt_files(), *map(long_name, LENGTHS)]


def shipped(
    chosen: Collection[str] | None = None,
    *,
    count: Count | None = None,
    room: int | None = None,
    force: bool = True,
) -> list[Task]:
    """The tasks of workloads that ship, in a fixed order.

    Args:
        chosen: names of workloads; None: all of them.
        count: counts a prompt's tokens; long contexts are made with it, and left out without.
        room: positions of the target's context; longer prompts are left out.
        force: take the recorded answers of tasks that a small model cannot write.

    Raises:
        BadOptionError: a name that is none.
    """
    for name in chosen or ():
        if name not in names():
            raise BadOptionError(f"there is no workload {name!r}; there are {', '.join(names())}")
    tasks: list[Task] = []
    for name in names():
        if chosen is None or name in chosen:
            tasks += _tasks(name, force, count, room)
    return [it for it in tasks if room is None or count is None or fits(it, count, room)]


def most_of_each(tasks: Sequence[Task], most: int | Mapping[str, int] | None) -> list[Task]:
    """The first so many of each workload; None: all."""
    taken: Counter[str] = Counter()
    kept = []
    for task in tasks:
        taken[task.workload] += 1
        limit = most[task.workload] if isinstance(most, Mapping) else most
        if limit is None or taken[task.workload] <= limit:
            kept.append(task)
    return kept


def fits(task: Task, count: Count, room: int) -> bool:
    """Whether a prompt leaves room for its reply; of a raw text the template's share is counted."""
    return count(task.messages) + task.max_tokens <= room


def _tasks(name: str, force: bool, count: Count | None, room: int | None) -> Iterator[Task]:
    if length := {long_name(it): it for it in LENGTHS}.get(name):
        if count is not None and (room is None or length <= room):
            yield long_task(length, count, force=force)
        return
    whole = tomllib.loads(prompt_files()[name].read_text(encoding="utf-8"))
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


LENGTHS = (1024, 2048, 4096, 8192, 16384)
"""Tokens of the prompt and its reply together."""

SEED = 1907

MIDDLE = date(1987, 3, 1)

NUMBERS = {"number": (2, 29), "large": (40, 390), "pressure": (968, 1039)}
"""Between which they are drawn."""

ASKED = (-1, 0, 2)
"""Days whose entries are asked for; the log reaches as far before them as after."""


def long_name(length: int) -> str:
    """The workload of a length, as ``long-4k``."""
    return f"long-{length // 1024}k"


def long_task(length: int, count: Count, *, force: bool) -> Task:
    """A log of many days, and the question for some in its middle, word for word.

    Args:
        length: the most tokens of the conversation with its reply; it falls short of that by less
            than an entry, if it is not shorter than the shortest log.
        force: take the entries themselves as the recorded answer.
    """
    answer = "\n".join(map(entry, ASKED))
    # As a turn of its own: not every template takes a conversation that ends with a reply.
    reply = count([{"role": "user", "content": answer}])

    def size(days: int) -> int:
        return count([_question(days)]) + reply

    shortest = 2 * len(ASKED)
    days = bisect_right(range(length), length, lo=shortest, key=size) - 1
    question = _question(max(days, shortest))
    return Task(
        id=f"{long_name(length)}-1",
        workload=long_name(length),
        messages=(question,),
        max_tokens=reply,
        forced=answer if force else None,
    )


@cache
def entry(day: int) -> str:
    """The log of a day, the same at every call."""
    words = _words()
    chance = random.Random(f"{SEED} {day}")
    sentences = chance.sample(words["sentences"], chance.randint(2, 5))
    text = " ".join(_filled(sentence, words, chance) for sentence in sentences)
    return f"{_date(day)}: {text}"


def _question(days: int) -> dict[str, str]:
    first = -(days // 2)
    log = "\n".join(map(entry, range(first, first + days)))
    named = ", ".join(map(_date, ASKED))
    text = (
        f"This is the log of a lighthouse, a line a day.\n\n{log}\n\nRepeat the entries of {named} "
        "word for word, each on its own line, and nothing else."
    )
    return {"role": "user", "content": text}


def _date(day: int) -> str:
    return (MIDDLE + timedelta(day)).isoformat()


def _filled(sentence: str, words: dict[str, Any], chance: random.Random) -> str:
    def word(name: str) -> str:
        if name in NUMBERS:
            return str(chance.randint(*NUMBERS[name]))
        if name == "voltage":
            return f"{chance.randint(10, 139) / 10:.1f}"
        if name == "hour":
            return f"{chance.randint(0, 23):02}:{chance.choice((0, 10, 20, 30, 45)):02}"
        return str(chance.choice(words[name if name in words else f"{name}s"]))

    pieces = sentence.replace("}", "{").split("{")
    return "".join(word(piece) if at % 2 else piece for at, piece in enumerate(pieces))


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads((folder() / "prompts" / "station.toml").read_text(encoding="utf-8"))


WORKLOAD = "own chats"

UNKNOWN = "und"
"""The code of an unknown language."""

SLACK = 32
"""Tokens that a reply may be longer than the stored one."""

REPLAYED = 16
"""Replies that are asked for again."""

OF_EACH = 2
"""Most of them of one conversation."""


def replayed(
    store: Store,
    *,
    count: Count,
    room: int,
    most: int = REPLAYED,
) -> list[Task]:
    """Stored replies to generate again, the newest conversations first.

    Of each conversation's current path the last replies are taken, each with the messages before
    it.

    Args:
        room: positions of the target's context.

    Raises:
        BadOptionError: there are no chats, or none that fits.
    """
    tasks: list[Task] = []
    left_out = False
    for chat in store.chats():
        found = list(_of_chat(chat, store.thread(chat.id), count))
        fitting = [task for task in found if fits(task, count, room)]
        left_out |= len(fitting) < len(found)
        tasks += fitting[:OF_EACH]
        if len(tasks) >= most:
            break
    if not tasks:
        raise BadOptionError(
            f"none of the stored chats fits the context of {room} positions: choose another pair"
            if left_out
            else "there are no stored chats to replay: start one, or name a file with --prompts"
        )
    return tasks[:most]


def _of_chat(chat: Chat, thread: list[Stored], count: Count) -> Iterator[Task]:
    """The replies of a conversation, the last one first."""
    for at in range(len(thread) - 1, 0, -1):
        reply, asked = thread[at], thread[at - 1]
        if reply.role != ASSISTANT or reply.state == OPEN or not reply.text.strip():
            continue
        if asked.role not in (USER, RAW) or not asked.text.strip():
            continue
        raw = asked.role == RAW
        before = [asked] if raw else thread[:at]
        messages: list[Message] = [
            {"role": ASSISTANT if it.role == ASSISTANT else USER, "content": it.text}
            for it in before
        ]
        if chat.system and not raw:
            messages.insert(0, {"role": "system", "content": chat.system})
        yield Task(
            id=f"{chat.id}-{reply.id}",
            workload=WORKLOAD,
            messages=tuple(messages),
            max_tokens=count([{"role": "user", "content": reply.text}]) + SLACK,
            language=UNKNOWN,
            source=REPLAY,
            raw=raw,
        )
