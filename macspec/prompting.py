"""From a conversation to the prompt that the models read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .conversation import Message, checked_messages, fit, overflow, turn_starts
from .errors import BadOptionError
from .models.pair import Pair
from .models.template import Template
from .reasoning import opened


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is read before a reply."""

    tokens: list[int]
    notices: Sequence[str] = ()
    """What there is to say about it."""
    dropped_messages: int = 0
    """Oldest messages that were left out, system turns not counted."""
    reasoning: bool = False
    """Whether the reply begins inside of reasoning."""


class Prompting:
    """Makes the prompts of one target's conversations.

    Args:
        pair: whose target's template is used.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._templates: dict[bool | None, Template] = {}

    @property
    def thinks(self) -> bool:
        """Whether reasoning can be switched on and off."""
        return self._template(None).switch is not None

    def raw(self, messages: str | Sequence[Message], context: int) -> Prompt:
        """A text that is continued as it is.

        Raises:
            BadOptionError, ContextOverflowError: it is no text, empty or too long.
        """
        if not isinstance(messages, str):
            raise BadOptionError("raw takes one text, not a list of messages")
        tokens = self._template(None).raw(messages)
        if not tokens:
            raise BadOptionError("the prompt is empty; say something")
        if len(tokens) >= context:
            raise overflow(len(tokens), context)
        return Prompt(tokens, reasoning=opened(self._pair.target.tokenizer, tokens))

    def chat(
        self,
        messages: str | Sequence[Message],
        context: int,
        reserve: int,
        *,
        think: bool | None = None,
        on_overflow: Literal["drop", "refuse"] = "drop",
        resume: bool = False,
    ) -> Prompt:
        """A conversation; the arguments that are not here are those of ``Session.reply``.

        Args:
            context: positions that there are.
            reserve: how many of them the reply should have where turns can be dropped.

        Raises:
            BadOptionError, ContextOverflowError: it cannot be answered.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        turns = checked_messages(messages, resume=resume)
        template = self._template(think)

        def render(kept: Sequence[Message]) -> list[int]:
            return template.resumed(kept) if resume else template.tokens(kept)

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
                    f"the conversation is longer than the context: the oldest {turn} left out"
                )
        inside = opened(self._pair.target.tokenizer, tokens)
        if resume and (turns[-1]["content"] or turns[-1].get("reasoning")):
            inside = template.tags and not turns[-1]["content"]
        return Prompt(tokens, notices, missing, inside)

    def _template(self, think: bool | None) -> Template:
        if think not in self._templates:
            self._templates[think] = Template(self._pair, think)
        return self._templates[think]
