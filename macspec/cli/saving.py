"""The conversation that ``macspec run`` continues, and in which it saves its turns."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ..config.schema import BUILT_IN, NONE, section
from ..errors import BadOptionError
from ..events import Event, Finished, Text
from ..power import ReplyEnergy
from ..store import (
    ASSISTANT,
    RAW,
    USER,
    Chat,
    GenerationMetadata,
    Message,
    OpenReply,
    Store,
    add_one_shot,
    last_generated,
    request_messages,
    store_path,
    stored_model,
)
from ..text import Written
from .options import LAST

if TYPE_CHECKING:
    from ..sampling import Sampling  # imports MLX

SAVED = [name for name in section("sampling") if name != "seed"]
"""Sampling options that a conversation keeps if they are given on the command line."""


class Conversation:
    """The turns so far, and the one that is being added.

    Make it before the settings fill in the options: the system prompt, sampling and models of a
    conversation that is continued take precedence over the settings. BadOptionError if there is no
    such conversation, or it cannot be continued.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        given = {name: getattr(options, name) for name in SAVED}
        self._sampling = {name: value for name, value in given.items() if value is not None}
        self._store: Store | None = None
        self._chat: Chat | None = None
        self._thread: list[Message] = []
        self._reply: OpenReply | None = None
        self._written = Written()
        self._metadata = GenerationMetadata()
        if options.chat is not None:
            self._recall(options.chat)

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved although it should be; None: it is."""
        return None if self._store is None or not self._options.save else self._store.trouble

    @property
    def continues(self) -> bool:
        return bool(self._thread)

    def messages(self) -> str | list[dict[str, str]]:
        """What the engine is asked; a raw prompt stays text."""
        options = self._options
        if options.raw:
            return str(options.prompt)
        said = request_messages(self._thread, options.system or "")
        return [*said, {"role": USER, "content": options.prompt}]

    def begin(self, sampling: Sampling) -> None:
        """Save the prompt; ``take`` saves the reply."""
        options = self._options
        if not options.save:
            return
        store = self._store = self._store or Store(store_path())
        if self._chat is None:
            chat = store.new_chat(system=options.system or "", sampling=self._sampling)
            add_one_shot(chat.uid)
        else:
            chat = self._chat
            if options.system != chat.system:
                store.set_system(chat.id, options.system)
            if self._sampling:
                store.set_sampling(chat.id, {**chat.sampling, **self._sampling})
        parent = self._thread[-1].id if self._thread else None
        prompt = store.add(chat.id, parent, options.prompt, RAW if options.raw else USER)
        self._metadata = GenerationMetadata(
            model=stored_model(options.target),
            draft=stored_model(options.draft),
            sampling={name: value for name, value in asdict(sampling).items() if name != "seed"},
            rule=options.rule,
            method=options.method,
            depth=options.depth,
            seed=sampling.seed,
        )
        self._reply = store.reply(chat.id, prompt.id, self._metadata)

    def take(self, event: Event) -> None:
        if self._reply is not None and isinstance(event, Text):
            self._reply.append(*self._written.take(event))

    def end(
        self,
        finished: Finished | None,
        *,
        broken: bool = False,
        energy: ReplyEnergy | None = None,
    ) -> None:
        """The reply is over; ``broken``: neither the model nor the user ended it."""
        reply, written = self._reply, self._written
        if reply is None:
            return
        metadata = replace(
            self._metadata,
            spans=written.spans,
            reasoning_spans=written.reasoning_spans,
            energy=None if energy is None else energy.as_dict(),
        )
        if finished is not None:
            if rest := finished.text[written.characters :]:
                reply.append(rest)
            done = {name: getattr(finished, name) for name in ("rule", "method", "depth", "seed")}
            metadata = replace(metadata, **done, stats=finished.stats.as_dict())
        if finished is None or broken:
            reply.cut_off(metadata)
        else:
            reply.finish(finished.reason, metadata)
        self._reply = None  # only now: after an interrupt this may be called again

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _recall(self, wanted: int | str) -> None:
        options = self._options
        store = self._store = Store(store_path())
        chat = store.last_chat() if wanted == LAST else store.chat(int(wanted))
        if chat is None:
            raise BadOptionError(store.trouble or "there is no conversation to continue yet")
        thread = store.thread(chat.id)
        if any(turn.role == RAW for turn in thread):
            raise BadOptionError(
                f"conversation {chat.id} was written with --raw and cannot be continued"
            )
        self._chat, self._thread = chat, _answered(thread)
        if options.system is None:
            options.system = chat.system
        for name in SAVED:
            if getattr(options, name) is None:
                setattr(options, name, chat.sampling.get(name))
        made = last_generated(chat, thread)
        if options.target is None and options.draft is None and made is not None:
            options.target, options.draft = made.model or BUILT_IN, made.draft or NONE


def _answered(thread: list[Message]) -> list[Message]:
    """The turns up to the last reply with text."""
    ends = [n for n, turn in enumerate(thread, 1) if turn.role == ASSISTANT and turn.text]
    return thread[: ends[-1]] if ends else []
