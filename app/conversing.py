"""What is done with whole conversations."""

from __future__ import annotations

from macspec.errors import BadOptionError

from .base import Base
from .chat.chatlist import ChatList, file_name, title_of


class Conversing(Base):
    """New, open, search, rename, fork, export, delete."""

    async def do_new(self, argument: str) -> None:
        """What is typed goes along: it was meant for the new one."""
        prompt = self.main.prompt
        prompt.stop_editing()
        self.conversation.save_unsent("")
        self.conversation.new()
        self.main.welcome.show_keys(self.keys)
        await self.show_turns()
        prompt.focus()

    async def do_chats(self, argument: str) -> None:
        if argument:
            if not argument.isdecimal():
                raise BadOptionError(f"{argument} is no number of a conversation; /search finds it")
            await self.open_chat(int(argument))
        else:
            await self._choose_chat("")

    async def do_search(self, argument: str) -> None:
        await self._choose_chat(argument)

    async def _choose_chat(self, query: str) -> None:
        from .screens.conversations import Conversations

        self._keep_unsent()
        chat = self.conversation.chat
        choice = await self.push_screen_wait(
            Conversations(
                ChatList(self.conversation.store),
                current=None if chat is None else chat.id,
                busy=self.conversation.busy,
                query=query,
            )
        )
        if choice is not None and choice.open is not None:
            await self.open_chat(choice.open)
        elif choice is not None and choice.changed:
            await self._look_again()

    async def _look_again(self) -> None:
        """This conversation may have another title, or be gone."""
        if self.conversation.chat is None:
            return
        if self.conversation.store.chat(self.conversation.chat.id).deleted is not None:
            self.conversation.new()
            await self.show_turns()
        else:
            self.conversation.refresh()
        self.show_state()

    async def open_chat(self, id: int) -> None:
        """Show another conversation, as it was left."""
        self._keep_unsent()
        self.conversation.open(id)
        self.main.prompt.load(self.conversation.unsent)
        self.main.prompt.set_history(self.conversation.sent)
        await self.show_turns()
        self.main.prompt.focus()

    def _keep_unsent(self) -> None:
        self.main.prompt.stop_editing()
        self.conversation.save_unsent(self.main.prompt.unsent)

    async def do_rename(self, argument: str) -> None:
        from .screens.box import Ask

        chat = self.conversation.chat
        assert chat is not None
        title: str | None = argument
        if not argument:
            title = await self.push_screen_wait(
                Ask("The new title:", title_of(chat), title="Rename")
            )
        if title is None:
            return
        self.conversation.rename(title)
        self.show_state()

    async def do_fork(self, argument: str) -> None:
        self._keep_unsent()
        turn = self.chosen if self.chosen is not None else self.conversation.turns[-1].id
        self.conversation.fork(turn)
        await self.show_turns()
        self.say("a copy up to here; the first conversation is as it was")

    async def do_export(self, argument: str) -> None:
        name: str | None = argument
        wrong = ""
        while name is not None:
            if name:
                try:
                    self.say(f"the conversation is in {self.conversation.export(name).absolute()}")
                    return
                except BadOptionError as error:
                    if argument:
                        raise
                    wrong = str(error)
            name = await self._ask_file(name, wrong)

    async def _ask_file(self, name: str, wrong: str) -> str | None:
        from .screens.box import Ask

        chat = self.conversation.chat
        assert chat is not None
        return await self.push_screen_wait(
            Ask(
                "Write it to the file (.md, or .json with every version):",
                name or file_name(title_of(chat), ".md"),
                title="Export",
                wrong=wrong,
            )
        )

    async def do_delete(self, argument: str) -> None:
        chat = self.conversation.chat
        assert chat is not None
        self._keep_unsent()
        self.conversation.delete()
        self.main.prompt.load("")
        await self.show_turns()
        self.say(f"deleted {title_of(chat)}; {self.keys.shown('undo')} brings it back")

    async def do_undo(self, argument: str) -> None:
        chats = self.conversation.undo()
        await self.open_chat(chats[0].id)
        self.say("brought back")
