"""Fitting a conversation into the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from .errors import BadOptionError, ContextOverflowError

Message = Mapping[str, str]

ROLES = ("system", "user", "assistant")


def checked_messages(messages: Sequence[Message], *, resume: bool = False) -> list[dict[str, str]]:
    """A copy of the messages.

    Args:
        resume: the last one is a reply that is to go on.

    Raises:
        BadOptionError: no messages, an unknown role, no text, or a last turn that is empty or not
            of the role that it must be of.
    """
    for message in messages:
        if message.get("role") not in ROLES:
            raise BadOptionError(
                f"a message has the role {message.get('role')!r}; "
                f"it must be one of {', '.join(ROLES)}"
            )
        if not isinstance(message.get("content"), str):
            raise BadOptionError("a message has no text; its content must be a string")
    if resume:
        if not messages or messages[-1]["role"] != "assistant":
            raise BadOptionError("there is no reply to go on with")
        messages, reply = messages[:-1], [dict(messages[-1])]
    if not messages or not messages[-1]["content"].strip():
        raise BadOptionError("the prompt is empty; say something")
    return [*map(dict, messages), *(reply if resume else [])]


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where each turn begins among the messages that are no system turns: at a user's message."""
    spoken = [message for message in messages if message["role"] != "system"]
    return [i for i, message in enumerate(spoken) if i == 0 or message["role"] == "user"] or [0]


def fit(
    messages: Sequence[Message],
    render: Callable[[Sequence[Message]], list[int]],
    context: int,
    reserve: int,
) -> tuple[list[int], int]:
    """Drop the oldest whole turns until the prompt leaves ``reserve >= 1`` positions.

    A turn is a user's message with everything up to the next one. The system prompt and the newest
    turn always stay; the newest turn alone may use the reserve too. What goes is rounded up to
    an eighth of the context, so that the cut stays where it is for some turns and the cache remains
    of use.

    Returns:
        The prompt's tokens and how many turns were dropped.

    Raises:
        ContextOverflowError: even the newest turn alone is too long.
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
    """The error for a prompt that leaves no room for a reply."""
    return ContextOverflowError(
        f"the prompt has {prompt} tokens and the context holds {context}, which must include the "
        "reply; shorten the prompt or use a model with a longer context"
    )
