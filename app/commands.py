"""Every command, once for the screen and for line mode: ``do_<id>(it, argument)``.

Commands that are all about one front end, such as the help or the panel, are in ``View.own``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any, TypeVar

from macspec.choices import MAX_DEPTH, RULES, check_depth, check_method, check_rule, methods_with
from macspec.errors import BadOptionError
from macspec.store import title_of
from macspec.worker import PairChoice

from . import message, paths
from .actions import BY_ID, SAMPLING, THINK, Choice, Situation
from .chat.chatlist import LISTED, file_name, has_all
from .chat.turns import Turn
from .loading import Loading
from .slash import Completion, continuations
from .view import Question, View

Done = TypeVar("Done")


class Commands:
    """The commands of a view, and the pairs that it can load.

    Args:
        pairs: those to load at the start: the first that can be loaded.
        themes: gives the themes to choose from.
    """

    def __init__(
        self,
        view: View,
        pairs: Sequence[PairChoice],
        themes: Callable[[], Sequence[Choice]] = tuple,
    ) -> None:
        self.view, self.conversation, self.themes = view, view.conversation, themes
        self.loading = Loading(view, pairs)
        self._words = ""
        """What was searched for last."""

    async def run(self, id: str, argument: str = "") -> None:
        """Carry out an action."""
        name = f"do_{id}"
        able = next(it for it in (self, *self.view.own) if hasattr(it, name))
        await getattr(able, name)(argument)

    def _named(self, id: str) -> str:
        """An action as the user calls it: by its key, or by its command."""
        keys = self.view.keys
        return f"/{BY_ID[id].slash}" if keys is None else keys.shown(id)

    # Replies.

    async def do_stop(self, argument: str) -> None:
        if self.conversation.busy:
            self.conversation.stop()
        else:
            self.conversation.setup.cancel()

    async def do_regenerate(self, argument: str) -> None:
        await self.view.reply(self.conversation.regenerate(self.view.chosen))

    async def do_edit(self, argument: str) -> None:
        turn = self._turn("user", "raw")
        if turn is None:
            raise BadOptionError("there is no message of yours to edit")
        if argument:
            await self.view.reply(self.conversation.edit(turn.id, argument), argument)
        else:
            self.view.edit_turn(turn.id, turn.text)

    async def do_continue(self, argument: str) -> None:
        await self.view.reply(self.conversation.resume(self._reply().id))

    async def _step(self, by: int, argument: str) -> None:
        """Show another version of the selected turn, or of the last one that has several."""
        turns = self.conversation.turns
        chosen = [turn for turn in turns if turn.id == self.view.chosen]
        several = [turn for turn in turns if turn.siblings > 1]
        turn = (chosen or several[-1:] or turns[-1:])[0]
        if turn.siblings < 2:
            again, edit = self._named("regenerate"), self._named("edit")
            raise BadOptionError(f"there is only this version; {again} or {edit} makes another")
        if not 1 <= turn.sibling + by <= turn.siblings:
            side = "first" if by < 0 else "last"
            self.view.status(f"this is the {side} of {turn.siblings} versions")
            return
        place = turns.index(turn)
        self.conversation.step(turn.id, by)
        await self.view.show_version(place)

    do_older, do_newer = partialmethod(_step, -1), partialmethod(_step, 1)

    async def do_copy(self, argument: str) -> None:
        turns = self.conversation.turns
        chosen = next((turn for turn in turns if turn.id == self.view.chosen), None)
        turn = chosen or self._turn("assistant") or turns[-1]
        if not turn.text:
            raise BadOptionError("there is no text to copy")
        what = "the reply" if turn.role == "assistant" else "the message"
        if not argument:
            self.view.copy(turn.text, what)
            return
        text = turn.text if turn.text.endswith("\n") else f"{turn.text}\n"
        self.view.status(f"wrote {what} to {message.write(Path(argument), text)}")

    async def do_copy_code(self, argument: str) -> None:
        from .transcript.markdown import code_blocks

        blocks = code_blocks(self._reply().text)
        if not blocks:
            raise BadOptionError("this reply has no code block")
        number = len(blocks)
        if argument:
            if not argument.isdecimal() or not 1 <= int(argument) <= len(blocks):
                raise BadOptionError(f"this reply has code blocks 1 to {len(blocks)}")
            number = int(argument)
        which = "the code block" if len(blocks) == 1 else f"code block {number} of {len(blocks)}"
        self.view.copy(blocks[number - 1].text, which)

    def _turn(self, *roles: str) -> Turn | None:
        """The selected turn; the reply to it, or what it replies to, if that has one of the roles;
        without a selection the last one that has."""
        turns = self.conversation.turns
        for place, turn in enumerate(turns):
            if turn.id == self.view.chosen:
                if turn.role not in roles:
                    place += 1 if "assistant" in roles else -1
                near = turns[place] if 0 <= place < len(turns) else None
                return near if near is not None and near.role in roles else None
        return next((turn for turn in reversed(turns) if turn.role in roles), None)

    def _reply(self) -> Turn:
        turn = self._turn("assistant")
        if turn is None:
            raise BadOptionError("the selected message has no reply")
        return turn

    # Conversations.

    async def do_new(self, argument: str) -> None:
        self.view.keep_typed(along=True)
        self.conversation.new()
        await self.view.redraw()
        self.view.status("new conversation; the previous one is kept")

    async def do_chats(self, argument: str) -> None:
        if argument and not argument.isdecimal():
            raise BadOptionError(f"{argument} is not a conversation number; /chats lists them")
        if argument:
            await self.open_chat(int(argument))
        else:
            await self._choose_chat(None)

    async def do_search(self, argument: str) -> None:
        await self._choose_chat(argument)

    async def _choose_chat(self, query: str | None) -> None:
        self.view.keep_typed()
        opening = await self.view.dialogs.choose_chat(query)
        if opening is None:
            return
        await self.open_chat(opening.chat)
        found, words = opening.message, opening.words
        if found is not None:
            self.conversation.show_message(found)
            await self.view.redraw()
        elif words:  # They are in the title, which is often the first message.
            turns = self.conversation.turns
            found = next((turn.id for turn in turns if has_all(turn.text, words)), None)
        if found is not None:
            self._words = words
            self.view.show_match(found, words)

    async def do_find(self, argument: str) -> None:
        words = argument or self._words
        if not words:
            question = Question("Find:", "Find", "", "write the words to find after /find")
            await self.view.dialogs.ask(question, self._find)
        elif wrong := self._find(words):
            raise BadOptionError(wrong)

    def _find(self, words: str) -> str:
        """Show the match before the selected turn, or the last one; returns why there is none."""
        turns = self.conversation.turns
        found = [turn.id for turn in turns if has_all(turn.text, words)]
        if not found:
            return f"no message here has {words}; /search looks in all conversations"
        chosen, again = self.view.chosen, words == self._words
        at = found.index(chosen) - 1 if again and chosen in found else len(found) - 1
        self._words = words
        self.view.show_match(found[at], words)
        self.view.status(f"match {at % len(found) + 1} of {len(found)}")
        return ""

    async def open_chat(self, id: int) -> None:
        """Go on with another conversation, where it was left."""
        self.view.keep_typed()
        self.conversation.open(id)
        await self.view.show_chat()

    async def do_rename(self, argument: str) -> None:
        chat = self.conversation.chat
        assert chat is not None
        renamed = await self._with(
            argument,
            self.conversation.rename,
            Question("New title:", "Rename", title_of(chat), "write the new title after /rename"),
        )
        if renamed is not None:
            self.view.status(f"renamed to {title_of(renamed)}")

    async def do_fork(self, argument: str) -> None:
        self.view.keep_typed()
        chosen = self.view.chosen
        self.conversation.fork(self.conversation.turns[-1].id if chosen is None else chosen)
        await self.view.redraw()
        self.view.status("forked; the original conversation is unchanged")

    async def do_export(self, argument: str) -> None:
        chat = self.conversation.chat
        assert chat is not None
        name, what = file_name(title_of(chat), ".md"), ".md, or .json to include every version"
        question = Question(f"File name ({what}):", "Export", name)
        path = await self._with(argument, self.conversation.export, question)
        if path is not None:
            self.view.status(f"exported to {path.absolute()}")

    async def do_delete(self, argument: str) -> None:
        chat = self.conversation.chat
        assert chat is not None
        self.view.keep_typed()
        self.conversation.delete()
        await self.view.show_chat()
        self.view.status(f"deleted {title_of(chat)}; {self._named('undo')} restores it")

    async def do_undo(self, argument: str) -> None:
        await self.open_chat(self.conversation.store.undo()[0].id)
        self.view.status("restored")

    async def do_system(self, argument: str) -> None:
        if argument:
            self.conversation.tree.set_system(argument)
            self.view.status("system prompt set for this conversation")
        else:
            await self.view.dialogs.edit_settings("system")

    async def do_sampling(self, argument: str) -> None:
        if not argument:
            await self.view.dialogs.edit_settings("temperature")
            return
        name, _, text = argument.partition(" ")
        if name not in SAMPLING:
            raise BadOptionError(f"unknown setting {name}: choose from {', '.join(SAMPLING)}")
        kind = SAMPLING[name].kind
        try:
            value = kind.from_text(text.strip())
        except ValueError:
            raise BadOptionError(f"{name} must be {kind.says}") from None
        it = self.conversation
        await it.setup.set_sampling({**it.tree.sampling, name: value})
        self.view.status(f"{name} {text.strip()} in this conversation")

    async def do_think(self, argument: str) -> None:
        value = argument.lower() or self.conversation.think or "auto"
        if value not in THINK:
            raise BadOptionError(f"choose from {', '.join(THINK)}, not {argument}")
        if not argument and self.view.keys is not None:  # A key goes on to the next one.
            value = _next(self.conversation.thinking, value)
        fixed = self.conversation.set_think(None if value == "auto" else value)
        self.view.status(fixed or f"reasoning {value}: {THINK[value]}, from the next reply")

    async def _with(
        self, argument: str, work: Callable[[str], Done], question: Question
    ) -> Done | None:
        """Do something with the argument; without one, with the answer to a question."""
        if argument:
            return work(argument)
        done: list[Done] = []

        def check(answer: str) -> str:
            try:
                done.append(work(answer))
            except BadOptionError as error:
                return str(error)
            return ""

        await self.view.dialogs.ask(question, check)
        return done[0] if done else None

    # Speculation.

    async def do_depth(self, argument: str) -> None:
        if not argument:
            await self.view.adjust("depth", self.conversation.setup.desired.depth)
            return
        wanted = argument.lower()
        await self._set(depth=check_depth(int(wanted) if wanted.isdecimal() else wanted))

    async def _deepen(self, by: int, argument: str) -> None:
        """One step from the depth that is set, or from the one that auto used last."""
        state = self.conversation.panel()
        now = state.depth if isinstance(state.depth, int) else state.round_depth or 0
        await self._set(depth=min(max(now + by, 0), MAX_DEPTH))

    do_deeper, do_shallower = partialmethod(_deepen, 1), partialmethod(_deepen, -1)

    async def do_method(self, argument: str) -> None:
        now = self.conversation.setup.desired.method
        state = self.conversation.panel()
        methods = methods_with(state.draft, state.head)
        await self._set(method=check_method(argument.lower() or _next(methods, now)))

    async def do_rule(self, argument: str) -> None:
        now = self.conversation.setup.desired.rule
        await self._set(rule=check_rule(argument.lower() or _next(RULES, now)))

    async def do_temperature(self, argument: str) -> None:
        if not argument:
            now = self.conversation.setup.desired.sampling["temperature"]
            await self.view.adjust("temperature", f"{now:g}")
            return
        try:
            temperature = float(argument)
        except ValueError:
            raise BadOptionError(f'"{argument}" is not a number') from None
        await self.conversation.setup.tune(sampling={"temperature": temperature})
        self.view.status(f"temperature {temperature:g} from the next round")

    async def _set(self, **change: Any) -> None:
        await self.conversation.setup.tune(**change)
        ((what, value),) = change.items()
        self.view.status(f"{what} {value} from the next round")

    async def do_compare(self, argument: str) -> None:
        prompt = self._turn("user", "raw")
        id = None if prompt is None else prompt.id
        await self.view.dialogs.compare(self.conversation.compare(argument.lower() or None, id))

    # Models.

    async def do_models(self, argument: str) -> None:
        if argument:
            choice: PairChoice | None = self.loading.picker.asked(argument)
        else:
            choice = await self.view.dialogs.choose_pair(self.loading.picker)
        if choice is not None:
            await self.loading.load(choice)

    async def do_setup(self, argument: str) -> None:
        choice = await self.view.dialogs.choose_pair(self.loading.picker, guided=True)
        if choice is not None:
            await self.loading.load(choice)

    # What can be completed.

    def complete(self, typed: str) -> Sequence[Completion]:
        """How a line could go on."""
        return paths.argument(typed) or continuations(typed, self) or paths.mentioned(typed)

    @property
    def situation(self) -> Situation:
        return self.conversation.situation

    def models(self) -> Sequence[Choice]:
        """Models to name in a command."""
        return self.loading.picker.names()

    def chats(self) -> Sequence[Choice]:
        """Conversations to open."""
        return [(str(chat.id), title_of(chat)) for chat in self.conversation.store.chats(LISTED)]


def _next(choices: Iterable[str], now: str) -> str:
    """The choice after this one; after the last, or one that is not there, the first."""
    every = list(choices)
    return every[(every.index(now) + 1) % len(every)] if now in every else every[0]
