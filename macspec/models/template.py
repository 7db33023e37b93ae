"""The target's chat template: from messages to the one token list that both models read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateSyntaxError

from ..errors import BadOptionError, brief, quoted
from ..text import opened
from .pair import Pair
from .rendering import LimitError, limited, rendered

MARK = "macspec-probe"
"""A text that no template contains."""

SWITCHES = ("enable_thinking", "thinking")
"""What templates call the switch for reasoning."""

Messages = Sequence[Mapping[str, str]]


class Template:
    """Turns messages into the token list that the target was trained to answer.

    How the template handles a system message, and what it calls its switch for reasoning, is found
    by rendering a probe. A system message that it rejects is left out.

    Args:
        pair: whose target's template is used, never the draft model's own.
        think: reasoning on or off, where the template has a switch; None for its default.
    """

    def __init__(self, pair: Pair, think: bool | None = None) -> None:
        self._name = pair.target.name
        self._tokenizer: Any = pair.target.tokenizer
        self.switch: str | None = None
        """What the template calls its switch for reasoning; None: it has none."""
        self._rows = pair.target.width
        self._settings: dict[str, Any] = {}
        self._drops_system = False
        self.system_notice: str | None = None
        """Set where a system message has no effect."""
        self.think_notice: str | None = None
        """Set where ``think`` has no effect."""
        if self._tokenizer.has_chat_template:
            self._probe_system()
            self._probe_switch()
            if think is not None and self.switch is not None:
                self._settings = {self.switch: think}
            elif think is not None:
                self.think_notice = (
                    f"the chat template of {self._name} has no switch for reasoning: turning it "
                    "on or off has no effect"
                )

    def notices_for(self, messages: Messages) -> tuple[str, ...]:
        """What the template does not support of these messages, each a line for the user."""
        system = any(message["role"] == "system" for message in messages)
        both = (self.think_notice, self.system_notice if system else None)
        return tuple(notice for notice in both if notice is not None)

    def tokens(self, messages: Messages) -> list[int]:
        """The ids of a conversation, up to where the assistant's next turn begins.

        Messages have ``role`` and ``content``. Old reasoning is stripped if the template does so.

        Raises:
            BadOptionError: there is no template, or it rejects these messages.
        """
        if not self._tokenizer.has_chat_template:
            raise BadOptionError(
                f"{self._name} has no chat template: add --raw to continue the prompt as it is, "
                "or choose a chat model"
            )
        if self._drops_system:
            messages = [message for message in messages if message["role"] != "system"]
        for message in messages:
            _check_text(message["content"])
        try:
            tokens = self._render(messages, tokenize=True, **self._settings)
        except BadOptionError:
            raise
        except TemplateSyntaxError as error:
            raise BadOptionError(
                f"the chat template of {self._name} is damaged (line {error.lineno}: "
                f"{brief(error)}): copy the model again, or add --raw"
            ) from error
        except Exception as error:
            raise BadOptionError(
                f"the chat template of {self._name} rejects this conversation ({brief(error)}): "
                "change its messages, or add --raw"
            ) from error
        if not tokens:
            raise BadOptionError(
                f"the chat template of {self._name} makes an empty prompt of this conversation: "
                "add --raw, or choose another copy of the model"
            )
        return self._known(tokens)

    @property
    def tags(self) -> bool:
        """Whether the target marks reasoning with tags that are known."""
        return bool(self._tokenizer.think_start and self._tokenizer.think_end)

    def resumed(self, messages: Messages) -> list[int]:
        """The ids of a conversation up to the end of what the assistant has said so far.

        As ``tokens``, but the last message is the assistant's, and may have ``reasoning`` beside
        its ``content``.
        """
        *before, reply = messages
        tokens = self.tokens(before)
        said, reasoning = reply["content"], reply.get("reasoning", "") if self.tags else ""
        begun = opened(self._tokenizer, tokens)
        if reasoning:
            start = "" if begun else f"{self._tokenizer.think_start}\n"
            end = f"\n{self._tokenizer.think_end}\n\n"
            said = f"{start}{reasoning.rstrip(chr(10))}{end}{said}" if said else start + reasoning
        elif begun and said:
            said = f"\n{self._tokenizer.think_end}\n\n{said}"
        _check_text(said)
        return tokens + self._known(self._encoded(said, add_special_tokens=False))

    def raw(self, text: str) -> list[int]:
        """The ids of a text as it is, with the special tokens that the tokenizer itself adds.

        Raises:
            BadOptionError: it is not text.
        """
        _check_text(text)
        tokens = self._known(self._encoded(text))
        if not tokens:
            raise BadOptionError(f"the tokenizer of {self._name} makes no tokens of this prompt")
        return tokens

    def _encoded(self, text: str, **settings: Any) -> list[int]:
        try:
            with limited(len(text)):
                return list(self._tokenizer.encode(text, **settings))
        except Exception as error:
            raise BadOptionError(
                f"the tokenizer of {self._name} cannot read this text ({brief(error)}): change it"
            ) from error

    def _render(self, messages: Messages, *, tokenize: bool = False, **settings: Any) -> Any:
        turns = [dict(message) for message in messages]
        try:
            return rendered(self._tokenizer, turns, tokenize=tokenize, **settings)
        except LimitError as error:
            raise BadOptionError(
                f"the chat template of {self._name} was ended, as {error}: choose another copy of "
                "the model"
            ) from error

    def _known(self, tokens: Sequence[int]) -> list[int]:
        strange = next((token for token in tokens if token >= self._rows), None)
        if strange is not None:
            token = quoted(repr(self._tokenizer.convert_ids_to_tokens(strange)))
            raise BadOptionError(
                f"the prompt contains {token}, a token "
                f"that {self._name} has no embedding for: leave that text out"
            )
        return list(tokens)

    def _attempt(self, *messages: dict[str, str], **settings: Any) -> str | None:
        """The rendered text; None where the template rejects these messages."""
        try:
            return str(self._render(messages, **settings))
        except BadOptionError:
            raise
        except Exception:
            return None

    def _probe_system(self) -> None:
        user = {"role": "user", "content": "Hello"}
        text = self._attempt({"role": "system", "content": MARK}, user)
        if text is None and self._attempt(user) is not None:
            self._drops_system = True
            self.system_notice = (
                f"the chat template of {self._name} rejects system messages: the system prompt "
                "is left out"
            )
        elif text is not None and MARK not in text:
            self.system_notice = (
                f"the chat template of {self._name} ignores system messages: the system prompt "
                "has no effect"
            )

    def _probe_switch(self) -> None:
        user = {"role": "user", "content": "Hello"}
        for switch in SWITCHES:
            on, off = (self._attempt(user, **{switch: value}) for value in (True, False))
            if on is not None and off is not None and on != off:
                self.switch = switch
                return


def _check_text(text: str) -> None:
    """Half of a surrogate pair, which is what undecodable bytes become, is in no vocabulary."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadOptionError(
            f"the prompt is not valid Unicode at character {error.start}: give it as UTF-8 text"
        ) from error
