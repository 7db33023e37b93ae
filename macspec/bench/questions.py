"""Tasks made ready for a pair, and what an arm is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..errors import BadOptionError, MacspecError
from ..models import Pair
from ..models.template import Template
from ..prompt import Message
from ..sampling import Sampling
from .sample import Written
from .tasks import Task


def prompt_ids(task: Task, template: Template) -> list[int]:
    """The ids that every way to write a reply gets."""
    if task.raw:
        return template.raw(task.messages[-1]["content"])
    return template.tokens(task.messages)


def answer_ids(task: Task, pair: Pair) -> list[int] | None:
    """The ids of a task's recorded answer, cut to its longest reply; None where it has none.

    Raises:
        BadOptionError: nothing of it can be emitted.
    """
    if task.forced is None:
        return None
    tokenizer: Any = pair.target.tokenizer
    ids = tokenizer.encode(task.forced, add_special_tokens=False)
    # A token that ends the turn would end the measurement too.
    ids = [int(token) for token in ids if token not in pair.stop_ids and token < pair.vocabulary]
    if not ids:
        raise BadOptionError(
            f"none of the recorded answer of {task.id} is in this target's vocabulary"
        )
    return ids[: task.max_tokens]


@dataclass(frozen=True, slots=True)
class Question:
    """A task made ready for a pair: every arm gets the same ids."""

    id: str
    task: Task
    ids: tuple[int, ...]
    """The prompt, in the target's template and vocabulary."""
    max_tokens: int
    """Longest reply, which fits into the context."""
    forced: tuple[int, ...] | None = None
    """The reply to decode along; None: the target writes."""

    @property
    def workload(self) -> str:
        return self.task.workload

    @property
    def asked(self) -> str | list[Message]:
        """What a session is asked: a conversation, or a text to continue."""
        return self.task.messages[-1]["content"] if self.task.raw else list(self.task.messages)


def shortened(question: Question, limit: int) -> Question:
    """The same with a reply of at most so many tokens, recorded ones included."""
    forced = None if question.forced is None else question.forced[:limit]
    return replace(question, max_tokens=min(question.max_tokens, limit), forced=forced)


WARM_UP = 24
"""Tokens of the reply that only warms up."""


class Arm(Protocol):
    """One way to write a reply. Every reply starts from a cold cache."""

    name: str

    def why_not(self, question: Question) -> str | None:
        """Why it cannot answer this, in half a sentence; None if it can."""
        return None

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        """Whatever must come before the first reply that counts: building, warming up, choosing.

        A few of the questions that will be asked may be answered now.
        """
        for question in questions[:1]:
            self.write(shortened(question, WARM_UP), replace(sampling, seed=0), ends)

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        """Answer, from a cold cache; ``ends``: whether the target's end of turn ends the reply."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What it is and how it is set, ready for JSON."""
        ...

    def close(self) -> None:
        """Let go of what it holds between replies."""
        return


def ready(tasks: Sequence[Task], pair: Pair, most: int | None = None) -> tuple[list[Question], int]:
    """Tasks as questions to a pair.

    Args:
        most: longest reply, if it is to be shorter than the task's own.

    Returns:
        Those that fit into the context, and how many do not. Only recorded answers may go beyond
        what the target was made for.

    Raises:
        BadOptionError: none does, or the template refuses one.
    """
    template, questions, left_out = Template(pair), [], 0
    for task in tasks:
        limit = task.max_tokens if most is None else min(task.max_tokens, most)
        ids = prompt_ids(task, template)
        answer = answer_ids(task, pair)
        room = (_writable(pair) if answer is None else pair.context) - len(ids)
        if room < limit:
            left_out += 1
            continue
        forced = None if answer is None else tuple(answer[:limit])
        most_tokens = limit if forced is None else len(forced)
        questions.append(Question(task.id, task, tuple(ids), most_tokens, forced))
    if tasks and not questions:
        raise BadOptionError(
            f"none of the {len(tasks)} tasks fits the context of {pair.context} positions: "
            "choose shorter ones, or a smaller --max-tokens"
        )
    return questions, left_out


def with_later_turns(
    questions: Sequence[Question], pair: Pair, arm: Arm, known: dict[str, str] | None = None
) -> list[Question]:
    """The same with the later turns of those that have some.

    What comes before a later turn is one arm's greedy reply, so that all arms get the same prompt;
    turns that no longer fit the context are left out.

    Args:
        known: such replies by question; new ones are added.
    """
    template, whole = Template(pair), []
    known = {} if known is None else known
    for question in questions:
        whole.append(question)
        task = question.task
        for number, turn in enumerate(task.then, 2):
            before = whole[-1]
            try:
                if before.id not in known:
                    known[before.id] = arm.write(before, Sampling(temperature=0), True).text
                reply = {"role": "assistant", "content": known[before.id]}
                messages = (*task.messages, reply, {"role": "user", "content": turn})
                task = replace(task, messages=messages, then=())
                ids = prompt_ids(task, template)
            except MacspecError:
                break
            if _writable(pair) - len(ids) < question.max_tokens:
                break
            whole.append(Question(f"{question.id}/{number}", task, tuple(ids), question.max_tokens))
    return whole


def _writable(pair: Pair) -> int:
    """Positions at which the target itself can write."""
    return min(pair.context, pair.target.context)
