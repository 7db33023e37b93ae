"""From a conversation to the prompt that the models read, fitted into the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from .choices import EFFORTS, Think
from .errors import BadOptionError, ContextOverflowError
from .models.pair import Pair
from .models.template import Template
from .parts import ANSWER, REASONING, Format
from .text import common_prefix

Message = Mapping[str, str]

ROLES = ("system", "user", "assistant")

TOOL = "tool"
"""The role of what a tool answered."""

OTHER = "."
"""Stands for a message that is not known yet."""


def checked_messages(messages: Sequence[Message], *, resume: bool = False) -> list[dict[str, str]]:
    """A copy of the messages; ``resume``: the last one is a reply to be continued.

    Raises:
        BadOptionError: no messages, an unknown role, no text, or a last turn that is empty or has
            the wrong role.
    """
    before: Message = {}
    for message in messages:
        if message.get("role") == TOOL:
            if before.get("role") != TOOL and "tool_calls" not in before:
                raise BadOptionError(
                    "a message has the role 'tool' and follows no call of one; send the reply "
                    "with its tool_calls before it"
                )
        elif message.get("role") not in ROLES:
            raise BadOptionError(
                f"a message has the role {message.get('role')!r}; "
                f"it must be one of {', '.join(ROLES)}"
            )
        if not isinstance(message.get("content"), str):
            raise BadOptionError("a message has no text; its content must be a string")
        before = message
    if resume:
        if not messages or messages[-1]["role"] != "assistant":
            raise BadOptionError("there is no reply to continue")
        messages, reply = messages[:-1], [dict(messages[-1])]
    if not messages or not (messages[-1]["content"].strip() or messages[-1]["role"] == TOOL):
        raise BadOptionError("the prompt is empty; type a message")
    return [*map(dict, messages), *(reply if resume else [])]


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where each turn starts among the messages other than system ones: at a user's message."""
    spoken = [message for message in messages if message["role"] != "system"]
    return [i for i, message in enumerate(spoken) if i == 0 or message["role"] == "user"] or [0]


def fit(
    messages: Sequence[Message],
    render: Callable[[Sequence[Message]], list[int]],
    context: int,
    reserve: int,
) -> tuple[list[int], int]:
    """Drop the oldest whole turns until the prompt leaves ``reserve >= 1`` positions.

    The system prompt and the newest turn always stay; only the newest turn may use the reserve.
    What is dropped is rounded up to an eighth of the context, so that the cache stays useful.

    Returns:
        The prompt's tokens and how many turns were dropped.

    Raises:
        ContextOverflowError: even the newest turn is too long.
    """
    system = [message for message in messages if message["role"] == "system"]
    spoken = [message for message in messages if message["role"] != "system"]
    starts = turn_starts(messages)
    whole = render(messages)
    surplus = len(whole) - (context - reserve)
    if surplus <= 0:
        return whole, 0
    stride = max(context // 8, 1)
    drop = -(-surplus // stride) * stride

    def kept(turn: int) -> list[int]:
        return render([*system, *spoken[starts[turn] :]])

    newest = len(starts) - 1
    cut = bisect_left(range(newest), True, key=lambda turn: len(whole) - len(kept(turn)) >= drop)
    tokens = kept(cut)
    if len(tokens) >= context:
        raise overflow(len(tokens), context)
    return tokens, cut


def overflow(prompt: int, context: int) -> ContextOverflowError:
    return ContextOverflowError(
        f"the prompt has {prompt} tokens and the context holds {context}, which must include the "
        "reply; shorten the prompt or use a model with a longer context"
    )


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens read before a reply."""

    tokens: list[int]
    notices: Sequence[str] = ()
    """One-line notices for the user."""
    dropped_messages: int = 0
    """Oldest messages left out, system turns not counted."""
    part: str = ANSWER
    """Where the reply begins, as in ``Format.part_after``."""
    boundaries: tuple[int, ...] = ()
    """Positions, ascending, up to which later prompts of this conversation are likely the same."""


class Prompting:
    """Makes the prompts of one target's conversations, with its template."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._templates: dict[Think, Template] = {}

    @property
    def format(self) -> Format:
        """How the target marks the parts of its replies."""
        return self._template(None).format

    @property
    def thinks(self) -> bool:
        """Whether the target can switch reasoning."""
        return False in self._template(None).thinking

    @property
    def efforts(self) -> tuple[str, ...]:
        """How much it can be told to reason."""
        return tuple(effort for effort in EFFORTS if effort in self._template(None).thinking)

    def raw(self, messages: str | Sequence[Message], context: int) -> Prompt:
        """A text to be continued as it is.

        Raises:
            BadOptionError, ContextOverflowError: it is not a text, empty or too long.
        """
        if not isinstance(messages, str):
            raise BadOptionError("raw takes one text, not a list of messages")
        tokens = self._template(None).raw(messages)
        if not tokens:
            raise BadOptionError("the prompt is empty; type a message")
        if len(tokens) >= context:
            raise overflow(len(tokens), context)
        return Prompt(tokens, part=self.format.part_after(tokens))

    def chat(
        self,
        messages: str | Sequence[Message],
        context: int,
        reserve: int,
        *,
        think: Think = None,
        on_overflow: Literal["drop", "refuse"] = "drop",
        resume: bool = False,
        boundaries: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Prompt:
        """A conversation; see ``Session.reply`` for the other arguments.

        Args:
            reserve: positions to leave for the reply, if dropping turns can free them.
            boundaries: find them too.
            tools: those that the model may call, as OpenAI describes them.

        Raises:
            BadOptionError, ContextOverflowError: it is invalid or too long.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        turns = checked_messages(messages, resume=resume)
        template = self._template(think)

        def render(kept: Sequence[Message]) -> list[int]:
            return template.resumed(kept) if resume else template.tokens(kept, tools)

        notices = list(template.notices_for(turns))
        missing = 0
        if on_overflow == "refuse":
            tokens = render(turns)
            if len(tokens) >= context:
                raise overflow(len(tokens), context)
        else:
            tokens, dropped = fit(turns, render, context, reserve)
            missing = turn_starts(turns)[dropped]
            if dropped:
                turn = "turn was" if dropped == 1 else f"{dropped} turns were"
                notices.append(
                    f"the conversation is longer than the context; the oldest {turn} left out"
                )
        part = self.format.part_after(tokens)
        if resume and turns[-1]["content"]:
            part = ANSWER
        elif resume and turns[-1].get("reasoning") and self.format.marked:
            part = REASONING
        shared = boundaries and not resume and not missing
        places = _boundaries(turns, tokens, template, tools) if shared else ()
        return Prompt(tokens, notices, missing, part, places)

    def count(
        self, messages: str | Sequence[Message], *, raw: bool = False, think: Think = None
    ) -> tuple[int, int, int]:
        """Tokens of the last message, of the whole prompt, and of the prompt without what may be
        dropped from it; BadOptionError as ``chat`` and ``raw``."""
        template = self._template(think)
        if raw:
            whole = len(template.raw(str(messages)))
            return whole, whole, whole
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        turns = checked_messages(messages)
        spoken = [turn for turn in turns if turn["role"] != "system"]
        system = [turn for turn in turns if turn["role"] == "system"]
        newest = spoken[turn_starts(turns)[-1] :]
        message = template.raw(turns[-1]["content"])
        return len(message), len(template.tokens(turns)), len(template.tokens([*system, *newest]))

    def _template(self, think: Think) -> Template:
        if think not in self._templates:
            self._templates[think] = Template(self._pair, think)
        return self._templates[think]


def _boundaries(
    turns: Sequence[Message],
    tokens: list[int],
    template: Template,
    tools: Sequence[Mapping[str, Any]],
) -> tuple[int, ...]:
    """Where a prompt will part from this one after an edit of the newest message, and in the next
    turn, before which some templates drop reasoning."""
    edited = [*turns[:-1], {**turns[-1], "content": OTHER}]
    later = [*turns, {"role": "assistant", "content": OTHER}, {"role": "user", "content": OTHER}]
    parted, last = set(), len(tokens) - 1
    for messages in (edited, later):
        with suppress(BadOptionError):  # a template may reject what nobody has said yet
            # The last token is read in the pass that begins the reply.
            parted.add(min(common_prefix(tokens, template.tokens(messages, tools)), last))
    return tuple(sorted(parted - {0}))
