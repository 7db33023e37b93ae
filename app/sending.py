"""What is typed: saved and counted a moment after the last key, sent when its time has come."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from textual.timer import Timer
from textual.worker_manager import WorkerManager

from macspec.errors import BadOptionError, MacspecError
from macspec.store import COMPLETE
from macspec.worker import PromptTokens

from . import message
from .chat.conversation import Conversation
from .feed import Feed
from .prompt.prompt import Prompt
from .screens.main import Main
from .slash import parse

UNSENT = 1.0
"""Seconds after the last key at which the prompt is saved."""

COUNTED = 0.3
"""Seconds after the last key at which the tokens of the prompt are counted."""

TOO_LONG = "not sent: {:,} of {:,} tokens; shorten it, or use a model with a longer context"


class Host(Protocol):
    """What is needed of the app."""

    main: Main
    conversation: Conversation
    feed: Feed

    @property
    def workers(self) -> WorkerManager: ...

    def set_timer(self, delay: float, callback: Callable[[], Any]) -> Timer: ...

    def do(self, id: str, argument: str = "") -> None: ...

    def begin(self, work: Coroutine[Any, Any, None], group: str) -> None: ...

    def status(self, line: str, severity: str = "information") -> None: ...


class Sending:
    """Takes what is typed into the prompt."""

    def __init__(self, app: Host) -> None:
        self._app, self._main, self._conversation = app, app.main, app.conversation
        self._unsent: Timer | None = None
        self._count: Timer | None = None
        self._counted: tuple[str, PromptTokens | None] = "", None
        """The text whose tokens were counted last, and how many it has."""

    def send(self, event: Prompt.Submitted) -> None:
        """Carry out a command, send a message, or queue it behind the reply that streams."""
        turn_id = event.turn_id
        try:
            if turn_id is None and (command := parse(event.text)) is not None:
                action, argument = command
                self._app.do(action.id, argument)
                return
            if turn_id is None and self.replying:
                self._main.prompt.hold(event)
                return
            counted, count = self._counted
            if counted == event.text and count is not None and count.too_long:
                raise BadOptionError(TOO_LONG.format(count.least, count.context))
            text, notices = event.message()
            for notice in notices:
                self._app.status(notice, "warning")
            it = self._conversation
            updates = it.ask(text) if turn_id is None else it.edit(turn_id, text)
            self._app.begin(
                self._app.feed.stream(updates, partial(self._give_back, event)), "reply"
            )
        except MacspecError as error:
            self._give_back(event)
            self._app.status(str(error), "warning")

    def _give_back(self, event: Prompt.Submitted) -> None:
        """Put a message that was not sent back into the prompt."""
        if event.turn_id in [turn.id for turn in self._conversation.turns]:
            assert event.turn_id is not None
            self.edit(event.turn_id, event.text, changed=True)
        else:
            self._main.prompt.give_back(event.text)

    @property
    def replying(self) -> bool:
        """Whether a reply streams or is about to, or a comparison runs."""
        return self._conversation.busy or any(it.group == "reply" for it in self._app.workers)

    def send_queued(self) -> None:
        """Send the next message of the queue, or give all back if the reply did not end well."""
        turns, prompt = self._conversation.turns, self._main.prompt
        if turns and turns[-1].state == COMPLETE:
            self.send(prompt.next_held())
        else:
            prompt.give_back_queue()

    def heed(self) -> None:
        """Save what is typed, a moment after the last key."""
        for timer in (self._unsent, self._count):
            if timer is not None:
                timer.stop()
        self._unsent = self._app.set_timer(UNSENT, self._save_unsent)
        self._count = self._app.set_timer(
            COUNTED, lambda: self._app.begin(self._count_typed(), "count")
        )
        if not self._main.prompt.area.text:
            self._main.prompt.show_count(None)

    async def _count_typed(self) -> None:
        """Show how many tokens the prompt has, unless it is a command."""
        prompt, text, count = self._main.prompt, self._main.prompt.value, None
        if not text.startswith("/"):
            with suppress(message.FileError):
                count = await self._conversation.count(prompt.message())
        if self._main.there and text == prompt.value:
            self._counted = text, count
            prompt.show_count(count)

    def _save_unsent(self) -> None:
        if self._main.there:
            self._conversation.save_unsent(self._main.prompt.unsent)

    def edit(self, turn_id: int, text: str, *, changed: bool = False) -> None:
        """Put a message into the prompt, to be resent; ``changed``: some of it was typed before."""
        asked = [turn.id for turn in self._conversation.turns if turn.role != "assistant"]
        what = f"message {asked.index(turn_id) + 1}"
        self._main.prompt.edit(turn_id, text, what, changed=changed)
