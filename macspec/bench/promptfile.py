"""Prompts from a file: Spec-Bench's form, HumanEval's, or a plain one."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from ..prompt import ROLES
from .tasks import Task

MAX_TOKENS = 256
"""Longest reply, where the file names none."""

FORCED_CATEGORIES = ("summarization", "rag")
"""Spec-Bench's tasks that ask for more than a small model can write."""

CHAT_CATEGORIES = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
"""Spec-Bench's first eighty questions: MT-bench, which counts as one task."""

MT_BENCH = "mt_bench"

FORMS = (
    "question_id, category and turns (Spec-Bench); task_id, prompt and canonical_solution "
    "(HumanEval); or prompt, messages, question or instruction, with answer or output"
)

Entry = Mapping[str, Any]


class _WrongError(Exception):
    """What is wrong with an entry."""


def from_file(path: Path, *, force: bool = True, max_tokens: int | None = None) -> list[Task]:
    """The tasks of a file of JSON lines, or of one JSON array; also packed with gzip.

    Args:
        force: take the recorded answers: of HumanEval and the plain form where there is one, of
            Spec-Bench for summarization and rag.
        max_tokens: longest reply; None: what the file says, else ``MAX_TOKENS``.

    Raises:
        BadOptionError: it cannot be read, or something in it is of no known form; with its line.
    """
    tasks: list[Task] = []
    seen: dict[str, str] = {}
    for place, entry in _entries(path):
        try:
            task = _task(entry, path, len(tasks) + 1, force, max_tokens)
        except _WrongError as wrong:
            raise BadOptionError(f"{path}, {place}: {wrong}") from None
        if task.id in seen:
            raise BadOptionError(f"{path}, {place}: {task.id!r} is already in {seen[task.id]}")
        seen[task.id] = place
        tasks.append(task)
    if not tasks:
        raise BadOptionError(f"{path} has no prompts; give one JSON object per line")
    return tasks


def _entries(path: Path) -> Iterator[tuple[str, Entry]]:
    """Each object of a file, and its place."""
    text = _text(path)
    if text.lstrip().startswith("["):
        found = [(f"entry {at}", it) for at, it in enumerate(_parsed(text, str(path)), 1)]
    else:
        lines = [(f"line {at}", line) for at, line in enumerate(text.split("\n"), 1)]
        found = [(at, _parsed(line, f"{path}, {at}")) for at, line in lines if line.strip()]
    for place, entry in found:
        if not isinstance(entry, dict):
            raise BadOptionError(f"{path}, {place}: not an object; give {FORMS}")
        yield place, entry


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOptionError(f"{place}: not JSON: {error}") from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadOptionError(f"cannot read {path}: {error}") from None


def _task(entry: Entry, path: Path, number: int, force: bool, max_tokens: int | None) -> Task:
    form: Callable[[Entry, Path, int], Task]
    if "turns" in entry:
        form = _spec_bench
    elif "canonical_solution" in entry:
        form = _human_eval
    elif any(name in entry for name in ("prompt", "messages", "question", "instruction")):
        form = _plain
    else:
        raise _WrongError(f"unknown form; give {FORMS}")
    task = form(entry, path, number)
    return replace(
        task,
        max_tokens=max_tokens or _limit(entry),
        forced=task.forced if force else None,
        language=_word(entry, "language", "en"),
        source=path.name,
    )


def _spec_bench(entry: Entry, path: Path, number: int) -> Task:
    turns = entry["turns"]
    if not isinstance(turns, list) or not turns:
        raise _WrongError("turns is not a list of texts")
    first, *then = (_filled(turn, f"turn {at}") for at, turn in enumerate(turns, 1))
    category = _word(entry, "category", path.name.split(".")[0])
    # One text; of several, which may lie in lists of lists, a line each.
    lines = list(_lines(entry.get("reference"))) if category in FORCED_CATEGORIES else []
    return Task(
        id=_id(entry, "question_id", number),
        workload=MT_BENCH if category in CHAT_CATEGORIES else category,
        messages=_user(first),
        max_tokens=0,
        forced="\n".join(lines) if any(lines) else None,
        then=tuple(then),
    )


def _lines(reference: Any) -> Iterator[str]:
    if isinstance(reference, list):
        for inner in reference:
            yield from _lines(inner)
    elif isinstance(reference, str):
        yield _sound(reference.strip(), "reference")
    elif reference is not None:
        raise _WrongError("reference is not text")


def _human_eval(entry: Entry, path: Path, number: int) -> Task:
    return Task(
        id=_id(entry, "task_id", number),
        workload="humaneval",
        messages=_user(_filled(entry.get("prompt"), "prompt")),
        max_tokens=0,
        forced=_filled(entry["canonical_solution"], "canonical_solution"),
        raw=True,
    )


def _plain(entry: Entry, path: Path, number: int) -> Task:
    if "messages" in entry:
        messages = _messages(entry["messages"])
    else:
        name = next(name for name in ("prompt", "question", "instruction") if name in entry)
        text = _filled(entry[name], name)
        # EditEval's and Alpaca's forms give the text that is worked on beside the instruction.
        pieces = [entry.get(beside, "") for beside in ("context", "input")]
        if not all(isinstance(piece, str) for piece in pieces):
            raise _WrongError("context or input is not text")
        whole = "\n\n".join([text, *filter(str.strip, pieces)])
        messages = _user(_sound(whole, "context or input"))
    answer = next((entry[name] for name in ("answer", "output") if entry.get(name)), None)
    return Task(
        id=_id(entry, "task_id" if "task_id" in entry else "id", number),
        workload=_word(entry, "workload", _word(entry, "category", path.name.split(".")[0])),
        messages=messages,
        max_tokens=0,
        forced=None if answer is None else _filled(answer, "the answer"),
    )


def _messages(turns: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(turns, list) or not turns:
        raise _WrongError("messages is not a list of turns")
    messages = []
    for at, turn in enumerate(turns, 1):
        if not isinstance(turn, dict) or turn.get("role") not in ROLES:
            raise _WrongError(f"the role of message {at} is not one of {', '.join(ROLES)}")
        content = _filled(turn.get("content"), f"message {at}")
        messages.append({"role": str(turn["role"]), "content": content})
    if messages[-1]["role"] != "user":
        raise _WrongError("the last message is not the user's")
    return tuple(messages)


def _user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def _filled(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _WrongError(f"{name} is empty or not text")
    return _sound(value, name)


def _sound(text: str, name: str) -> str:
    """Half of a surrogate pair, which JSON can name, is in no vocabulary."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _WrongError(f"{name} is not valid Unicode at character {error.start}") from None
    return text


def _id(entry: Entry, key: str, number: int) -> str:
    value = entry.get(key, number)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _WrongError(f"{key} is neither a number nor text")
    return str(value)


def _word(entry: Entry, key: str, default: str) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise _WrongError(f"{key} is empty or not text")
    return value


def _limit(entry: Entry) -> int:
    value = entry.get("max_tokens", MAX_TOKENS)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _WrongError(f"max_tokens is {value!r}; it must be at least 1")
    return value
