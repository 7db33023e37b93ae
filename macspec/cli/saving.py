"""The conversation that ``macspec run`` continues, and where its turns are kept."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ..config.schema import BUILT_IN, NONE
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
    store_path,
    stored_model,
)
from ..text import Written

if TYPE_CHECKING:
    from ..sampling import Sampling  # imports MLX

LAST = "last"
"""The value of ``options.chat`` for ``--continue``."""

REMEMBERED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Options that a conversation keeps when they are given on the command line."""


class Conversation:
    """What was said so far, and the turn that is being added.

    Made before the settings fill in what the command line leaves open: a conversation that goes on
    comes before the settings, with its system prompt, its sampling and its models.

    Args:
        options: of ``macspec run``; what they leave open, and the conversation has, is set.

    Raises:
        BadOptionError: there is no such conversation, or it cannot go on.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        given = {name: getattr(options, name) for name in REMEMBERED}
        self._sampling = {name: value for name, value in given.items() if value is not None}
        self._store: Store | None = None
        self._chat: Chat | None = None
        self._thread: list[Message] = []
        self._reply: OpenReply | None = None
        self._written = Written()
        self._making = GenerationMetadata()
        if options.chat is not None:
            self._recall(options.chat)

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved although it should be; None while it is."""
        return None if self._store is None or not self._options.save else self._store.trouble

    @property
    def continues(self) -> bool:
        """Whether there are earlier turns."""
        return bool(self._thread)

    def messages(self) -> str | list[dict[str, str]]:
        """What to ask the session; a raw prompt stays text."""
        options = self._options
        if options.raw:
            return str(options.prompt)
        system = [{"role": "system", "content": options.system}] if options.system else []
        said = [{"role": turn.role, "content": turn.text} for turn in self._thread]
        return [*system, *said, {"role": USER, "content": options.prompt}]

    def begin(self, sampling: Sampling) -> None:
        """Keep the prompt; the reply follows with ``take``."""
        options = self._options
        if not options.save:
            return
        store = self._store = self._store or Store(store_path())
        if self._chat is None:
            chat = store.new_chat(system=options.system or "", sampling=self._sampling)
        else:
            chat = self._chat
            if options.system != chat.system:
                store.set_system(chat.id, options.system)
            if self._sampling:
                store.set_sampling(chat.id, {**chat.sampling, **self._sampling})
        parent = self._thread[-1].id if self._thread else None
        prompt = store.add(chat.id, parent, options.prompt, RAW if options.raw else USER)
        self._making = GenerationMetadata(
            model=stored_model(options.target),
            draft=stored_model(options.draft),
            sampling={name: value for name, value in asdict(sampling).items() if name != "seed"},
            rule=options.rule,
            method=options.method,
            depth=options.depth,
            seed=sampling.seed,
        )
        self._reply = store.reply(chat.id, prompt.id, self._making)

    def take(self, event: Event) -> None:
        """Keep what an event of the reply brings."""
        if self._reply is not None and isinstance(event, Text):
            self._reply.append(*self._written.take(event))

    def end(
        self,
        finished: Finished | None,
        *,
        broken: bool = False,
        energy: ReplyEnergy | None = None,
    ) -> None:
        """The reply is over.

        Args:
            broken: neither the model nor the user has ended it.
            energy: what it took, where that was measured.
        """
        reply, written = self._reply, self._written
        if reply is None:
            return
        making = replace(
            self._making,
            spans=written.spans,
            reasoning_spans=written.reasoning_spans,
            energy=None if energy is None else energy.as_dict(),
        )
        if finished is not None:
            if len(finished.text) > written.characters:
                reply.append(finished.text[written.characters :])
            making = replace(
                making,
                rule=finished.rule,
                method=finished.method,
                depth=finished.depth,
                seed=finished.seed,
                stats=finished.stats.as_dict(),
            )
        if finished is None or broken:
            reply.cut_off(making)
        else:
            reply.finish(finished.reason, making)
        self._reply = None  # Only now: an interrupt may have this done again.

    def close(self) -> None:
        """Let go of the store."""
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
        for name in REMEMBERED:
            if getattr(options, name) is None:
                setattr(options, name, chat.sampling.get(name))
        # What an imported file names is neither fetched nor loaded unasked.
        own = [turn.metadata for turn in thread if turn.id > (chat.imported or 0)]
        makings = [making for making in own if making is not None]
        if options.target is None and options.draft is None and makings:
            options.target = makings[-1].model or BUILT_IN
            options.draft = makings[-1].draft or NONE


def _answered(thread: list[Message]) -> list[Message]:
    """The turns up to the last reply that says something."""
    ends = [n for n, turn in enumerate(thread, 1) if turn.role == ASSISTANT and turn.text]
    return thread[: ends[-1]] if ends else []
