"""The target's chat template: from messages to the one token list that both models read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateSyntaxError

from ..choices import EFFORTS, Think
from ..errors import BadOptionError, brief, quoted
from ..parts import format_of
from .pair import Pair
from .rendering import LimitError, limited, rendered

MARK = "macspec-probe"
"""A text that no template contains."""

SWITCHES = ("enable_thinking", "thinking")
"""What templates call the switch for reasoning."""

EFFORT_NAMES = ("reasoning_effort", "thinking_effort")
"""What they call its effort."""

NO_EFFORT = "none"
"""The effort that turns it off, where templates check the word."""

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""What they call the reasoning of an earlier reply. Most drop it; that is left to them."""

Messages = Sequence[Mapping[str, str]]
"""Each with ``role`` and ``content``; a reply may have ``reasoning``."""


class Template:
    """Turns messages into the token list that the target was trained to answer.

    How the template handles a system message, what it calls its switch for reasoning, and how it
    takes the reasoning of earlier replies, is found by rendering probes. A system message that it
    rejects or ignores is put in front of the first message.

    Args:
        pair: whose target's template is used, never the draft model's own.
        think: reasoning on or off, or its effort, as far as the template can; None for its default.
    """

    def __init__(self, pair: Pair, think: Think = None) -> None:
        self._name = pair.target.name
        self._tokenizer: Any = pair.target.tokenizer
        self.thinking: dict[Think, dict[str, Any]] = {}
        """What the template is told for each choice of reasoning that it knows."""
        self.format = format_of(self._tokenizer)
        self._rows = pair.target.width
        self._settings: dict[str, Any] = {}
        self._folds_system = self._takes_blocks = False
        self.system_notice: str | None = None
        """Set where there is no system role."""
        self.think_notice: str | None = None
        """Set where ``think`` has no effect, or another one."""
        if self._tokenizer.has_chat_template:
            self._probe_system()
            self._probe_blocks()
            self.thinking = self._probe_thinking()
            self._set_thinking(think)

    def notices_for(self, messages: Messages) -> tuple[str, ...]:
        """What the template does not support of these messages, each a line for the user."""
        system = any(message["role"] == "system" for message in messages)
        both = (self.think_notice, self.system_notice if system else None)
        return tuple(notice for notice in both if notice is not None)

    def tokens(self, messages: Messages, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The ids of a conversation, up to where the assistant's next turn begins.

        Messages have ``role`` and ``content``, replies may have their ``reasoning`` beside it and
        their ``tool_calls``, a list in JSON. Whether the model sees reasoning again is the
        template's choice.

        Raises:
            BadOptionError: there is no template, or it rejects these messages.
        """
        if not self._tokenizer.has_chat_template:
            raise BadOptionError(
                f"{self._name} has no chat template: add --raw to continue the prompt as it is, "
                "or choose a chat model"
            )
        if self._folds_system:
            messages = _folded(messages)
        for message in messages:
            _check_text(message["content"] + message.get("reasoning", ""))
        turns = [self._turn(message) for message in messages]
        try:
            offered = {"tools": list(tools)} if tools else {}
            tokens = self._render(turns, tokenize=True, **offered, **self._settings)
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

    def resumed(self, messages: Messages) -> list[int]:
        """The ids of a conversation up to the end of what the assistant has said so far.

        As ``tokens``, but the last message is the assistant's, and may have ``reasoning`` beside
        its ``content``.
        """
        *before, reply = messages
        tokens = self.tokens(before)
        part = self.format.part_after(tokens)
        said = self.format.written(reply.get("reasoning", ""), reply["content"], part)
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

    def _render(self, turns: Sequence[Any], *, tokenize: bool = False, **settings: Any) -> Any:
        try:
            return rendered(self._tokenizer, turns, tokenize=tokenize, **settings)
        except LimitError as error:
            raise BadOptionError(
                f"the chat template of {self._name} was ended, as {error}: choose another copy of "
                "the model"
            ) from error

    def _turn(self, message: Mapping[str, str]) -> dict[str, Any]:
        """A message as the template's author expects it."""
        turn: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            return {**message}
        if message["role"] != "assistant":
            return turn
        if "tool_calls" in message:
            turn["tool_calls"] = json.loads(message["tool_calls"])
        turn["content"] = content = self.format.inert(message["content"])
        reasoning = self.format.inert(message.get("reasoning", ""))
        if reasoning and self._takes_blocks:
            turn["content"] = _blocks(reasoning, content)
        elif reasoning:
            turn.update(dict.fromkeys(REASONING_FIELDS, reasoning))
        return turn

    def _known(self, tokens: Sequence[int]) -> list[int]:
        strange = next((token for token in tokens if token >= self._rows), None)
        if strange is not None:
            token = quoted(repr(self._tokenizer.convert_ids_to_tokens(strange)))
            raise BadOptionError(
                f"the prompt contains {token}, a token "
                f"that {self._name} has no embedding for: leave that text out"
            )
        return list(tokens)

    def _attempt(self, *messages: dict[str, Any], **settings: Any) -> str | None:
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
        if MARK not in (text or "") and self._attempt(user) is not None:
            self._folds_system = True
            self.system_notice = (
                f"the chat template of {self._name} has no system role: the system prompt is put "
                "in front of the first message"
            )

    def _probe_blocks(self) -> None:
        """Find out whether it takes a reply as a list of blocks, as those of Mistral do."""
        user = {"role": "user", "content": "Hello"}
        reply = {"role": "assistant", "content": _blocks(MARK, "Hello")}
        start, end = self.format.opening.strip(), self.format.closing.strip()
        if start and f"{start}{MARK}{end}" in (self._attempt(user, reply, user) or ""):
            self._takes_blocks = True

    def _probe_thinking(self) -> dict[Think, dict[str, Any]]:
        """What the template is told for each choice of reasoning that makes a difference."""
        found: dict[Think, dict[str, Any]] = {}
        for name in SWITCHES:
            texts = self._attempts(name, (True, False))
            if len(set(texts.values())) == 2:
                found = {value: {name: value} for value in texts}
                break
        for name in EFFORT_NAMES:
            texts = self._attempts(name, (NO_EFFORT, *EFFORTS, MARK))
            if len(set(texts.values())) < 2:
                continue
            efforts = [effort for effort in EFFORTS if effort in texts]
            # A template that takes any word says nothing about what the model knows.
            if not found and NO_EFFORT in texts and MARK not in texts:
                found = {True: {name: efforts[-1]}, False: {name: NO_EFFORT}}
            found |= {effort: {**found.get(True, {}), name: effort} for effort in efforts}
            break
        return found

    def _attempts(self, name: str, values: Sequence[Any]) -> dict[Any, str]:
        """The texts with a setting's values, but for those that are rejected."""
        user = {"role": "user", "content": "Hello"}
        texts = {value: self._attempt(user, **{name: value}) for value in values}
        return {value: text for value, text in texts.items() if text is not None}

    def _set_thinking(self, think: Think) -> None:
        if think is None or think in self.thinking:
            self._settings = self.thinking.get(think, {})
            return
        efforts = [effort for effort in EFFORTS if effort in self.thinking]
        what = f"the chat template of {self._name}"
        if True in self.thinking:
            self._settings = self.thinking[True]
            self.think_notice = f"{what} does not know {think} effort: reasoning is on"
        elif not efforts:
            self.think_notice = (
                f"{what} has no switch for reasoning: turning it on or off has no effect"
            )
        elif think is False:
            self.think_notice = f"{what} cannot turn reasoning off: the least is {efforts[0]}"


def _blocks(reasoning: str, content: str) -> list[dict[str, str]]:
    return [{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": content}]


def _folded(messages: Messages) -> list[Mapping[str, str]]:
    """The messages with the system message in front of the first of the user's."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    spoken = [message for message in messages if message["role"] != "system"]
    if spoken and spoken[0]["role"] == "user":
        system.append(spoken.pop(0)["content"])
    text = "\n\n".join(filter(None, system))
    return [{"role": "user", "content": text}, *spoken] if text else spoken


def _check_text(text: str) -> None:
    """Half of a surrogate pair, which is what undecodable bytes become, is in no vocabulary."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadOptionError(
            f"the prompt is not valid Unicode at character {error.start}: give it as UTF-8 text"
        ) from error
