"""What every part of a conversation has at hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from macspec.config import Config
from macspec.errors import BadOptionError
from macspec.power import Meter
from macspec.store import Chat, Store
from macspec.worker import EngineClient, Tuning

from ..panel.live import LiveStats
from .asking import Asking
from .compare import Comparing
from .energy import Energies
from .loading import Loading
from .streaming import Streaming
from .tree import Tree
from .tuning import Dials
from .turns import Turn
from .updates import Update

BUSY = "a reply is being written: wait for it, or stop it with Esc"

COMPARING = "replies are being compared: wait for them, or stop that with Esc"

HISTORY = 200
"""Prompts that can be walked through."""


class State:
    """The parts of a conversation, and what there is to see of it.

    Args:
        engine: what answers; started, and closed, by whoever made it.
        store: where everything is kept.
        config: the settings.
        meter: measures power; started once a pair is there. None: nothing does.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        engine: EngineClient,
        store: Store,
        config: Config,
        *,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.store, self.config = engine, store, config
        self.listener: Callable[[Update], None] = lambda update: None
        """Told of ``Changed``, which happens after a reply has ended."""
        self.think = config.reply.think
        """Reasoning on or off; None: as the model does by itself."""
        self.first_run = not store.chats(1)
        """Whether there were no conversations yet."""
        self._tree = Tree(store, config.reply.system)
        self._asking = Asking(self._tree)
        self._live = LiveStats()
        self._dials = Dials(engine, config)
        self._loading = Loading(engine, self._live, self._dials, clock)
        self._energies = Energies(meter)
        self._streaming: Streaming | None = None
        self._comparing: Comparing | None = None

    @property
    def chat(self) -> Chat | None:
        """The conversation; None while nothing was said or typed in a new one."""
        return self._tree.chat

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The path that is shown; the text of a reply that streams is not in it yet."""
        return self._tree.turns

    @property
    def busy(self) -> bool:
        """Whether a reply streams, or replies are compared."""
        return self._streaming is not None or self._comparing is not None

    @property
    def unsent(self) -> str:
        """What was typed here and not sent."""
        return "" if self.chat is None else self.chat.unsent

    @property
    def sent(self) -> Sequence[str]:
        """Earlier prompts of all conversations, the newest last."""
        return self.store.prompts(HISTORY)

    @property
    def system(self) -> str:
        """The system prompt of this conversation."""
        return self._tree.system

    @property
    def sampling(self) -> dict[str, object]:
        """What this conversation sets otherwise than the settings do."""
        return self._tree.sampling

    @property
    def tuning(self) -> Tuning:
        """Method, depth, rule and the whole sampling, as they are set."""
        return self._dials.wanted(self.sampling)

    def _idle(self) -> None:
        if self._comparing is not None:
            raise BadOptionError(COMPARING)
        if self.busy:
            raise BadOptionError(BUSY)

    def _there(self) -> Chat:
        if self.chat is None:
            raise BadOptionError("nothing was said in this conversation yet")
        return self.chat
