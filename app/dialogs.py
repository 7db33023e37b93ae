"""The boxes that lie over the main screen, each imported when it is first needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from textual.app import App
from textual.command import CommandPalette

from macspec.config.schema import Config
from macspec.errors import BadOptionError
from macspec.worker import PairChoice

from .chat.chatlist import Opening
from .chat.comparison import Comparison
from .chat.conversation import Conversation
from .chat.introduction import proposal
from .chat.picker import ModelPicker
from .keys import Keys
from .view import Question


class Boxes:
    """The dialogs of a screen, and the commands that only show something.

    Args:
        redraw: shows the conversation anew.
    """

    def __init__(
        self,
        app: App[None],
        conversation: Conversation,
        keys: Keys,
        config: Config,
        redraw: Callable[[], Awaitable[None]],
    ) -> None:
        self._app, self._conversation, self._keys = app, conversation, keys
        self._config, self._redraw = config, redraw

    async def compare(self, found: AsyncIterator[Comparison]) -> None:
        from .screens.compare import CompareScreen

        self._app.push_screen(CompareScreen(found))

    async def choose_chat(self, query: str | None) -> Opening | None:
        from .screens.conversations import Conversations

        chat = self._conversation.chat
        screen = Conversations(
            self._conversation.store,
            current=None if chat is None else chat.id,
            busy=self._conversation.busy,
            query=query or "",
        )
        id = await self._app.push_screen_wait(screen)
        if id is None and chat is not None:
            if self._gone(chat.id):
                self._conversation.new()
                await self._redraw()
            else:
                self._conversation.refresh()
        return screen.opening

    def _gone(self, id: int) -> bool:
        try:
            return self._conversation.store.chat(id).deleted is not None
        except BadOptionError:
            return True

    async def ask(self, question: Question, check: Callable[[str], str]) -> None:
        from .screens.box import Ask

        box = Ask(question.text, question.value, title=question.title, check=check)
        await self._app.push_screen_wait(box)

    async def edit_settings(self, field: str) -> None:
        from .screens.chatsettings import ChatSettingsForm

        it = self._conversation
        config, tree = self._config, it.tree
        form = ChatSettingsForm(tree.system, tree.sampling, config, focus=field)
        if (wanted := await self._app.push_screen_wait(form)) is not None:
            system, sampling = wanted
            tree.set_system(system)
            await it.setup.set_sampling(sampling)

    async def choose_pair(self, pairs: ModelPicker, *, guided: bool = False) -> PairChoice | None:
        from .screens.switcher import Switcher

        return await self._app.push_screen_wait(Switcher(pairs, guided=guided))

    async def do_palette(self, argument: str) -> None:
        from .screens.help import Entries

        palette = CommandPalette([Entries], placeholder="Search commands", id="--command-palette")
        self._app.push_screen(palette)

    async def do_help(self, argument: str) -> None:
        from .screens.help import Help

        self._app.push_screen(Help(self._keys))

    async def do_stats(self, argument: str) -> None:
        from .screens.help import Numbers

        self._app.push_screen(Numbers(self._conversation.panel))

    async def do_about(self, argument: str) -> None:
        from .screens.help import About

        self._app.push_screen(About(self._keys, proposal()))
