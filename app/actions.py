"""Everything that can be done: one table behind keys, slash commands, the palette and the help.

Neither Textual nor MLX is needed to read it, so that line mode has the same commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

REASONS = {
    "busy": "no reply is being written",
    "working": "nothing is under way that could be stopped",
    "idle": "a reply is being written: Esc stops it",
    "turns": "nothing has been said yet",
    "replied": "there is no reply yet",
    "chat": "this conversation is kept with its first message",
}


@dataclass(frozen=True, slots=True)
class Situation:
    """A snapshot of a conversation."""

    busy: bool = False
    """A reply streams, or is about to."""
    loading: bool = False
    """A pair is on its way."""
    turns: bool = False
    """Something was said."""
    replied: bool = False
    """There is a reply."""
    chat: bool = False
    """It is in the store."""

    @property
    def idle(self) -> bool:
        """No reply streams."""
        return not self.busy

    @property
    def working(self) -> bool:
        """There is something to stop."""
        return self.busy or self.loading

    def lacks(self, needs: Iterable[str]) -> str | None:
        """Why what needs all that cannot be done, in one line; None: it can."""
        return next((REASONS[need] for need in needs if not getattr(self, need)), None)


METHODS = {
    "auto": "whatever should be fastest, before every round",
    "draft": "the draft model",
    "ngram": "text that repeats",
    "suffix": "text that repeats, in past replies too",
    "off": "nobody: plain decoding",
}
RULES = {
    "block": "the fastest",
    "keyed": "repeats its text for a seed",
    "match": "the classic",
}
COMPARED = {
    "greedy": "the likeliest tokens",
    "keyed": "both with one seed",
    "block": "the usual rule; the texts may differ",
    "match": "the classic rule; the texts may differ",
}
"""Rules under which plain and speculative replies can be compared."""
DEPTHS = {"auto": "what pays here", "0": "plain decoding", **dict.fromkeys(map(str, range(1, 17)))}
SAMPLING = {
    "temperature": "0 takes the likeliest token, more is bolder",
    "top_p": "keep the likeliest tokens up to this share",
    "top_k": "keep so many of the likeliest tokens; 0 keeps all",
    "min_p": "drop tokens below this share of the likeliest",
    "repetition_penalty": "above 1, recent tokens become less likely",
    "presence_penalty": "taken off the score of each recent token",
    "frequency_penalty": "taken off it for every recent use",
    "seed": "start of the random numbers",
}
"""What ``/sampling`` can set for a conversation."""
TEMPERATURES = {"0": "the likeliest token", "0.4": "careful", "0.7": "usual", "1": "as trained"}
THINK = {"auto": "as the model does by itself", "on": "reason first", "off": "answer at once"}

REPLY, CHAT, SPECULATION, VIEW, MACSPEC = GROUPS = (
    "Reply",
    "Conversation",
    "Speculation and models",
    "View",
    "macspec",
)


Choice = tuple[str, str]
"""An argument, and what it stands for in a few words. Untrusted."""


class Offers(Protocol):
    """What a front end can offer as arguments of commands; asked while somebody types."""

    def themes(self) -> Sequence[Choice]: ...

    def models(self) -> Sequence[Choice]: ...

    def chats(self) -> Sequence[Choice]: ...


Choices = Callable[[Offers], Sequence[Choice]]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done; ``do_<id>(argument)`` of a front end does it.

    The screen's keys call ``do_<id>("")``, a slash command gives what follows its name.
    """

    id: str
    title: str
    about: str
    """One sentence."""
    group: str
    keys: tuple[str, ...]
    """As Textual names them. Ctrl+letter and Esc work everywhere; a plain key works where the
    transcript or the panel has the focus. Terminal.app delivers all of them."""
    slash: str
    argument: str = ""
    """What may follow the slash command; in brackets where it can be left out."""
    choices: Choices | None = None
    """Values of the argument that are worth a completion."""
    extra_keys: tuple[str, ...] = ()
    """Where the terminal delivers them."""
    aliases: tuple[str, ...] = ()
    """Other names of the slash command, which the help does not list."""
    needs: tuple[str, ...] = ()
    """Fields of ``Situation`` that must be true."""
    screen: bool = False
    """Line mode has nothing that it could do this to."""

    @property
    def optional(self) -> bool:
        """Whether the slash command works without its argument."""
        return not self.argument or self.argument.startswith("[")

    def refusal(self, situation: Situation) -> str | None:
        """Why it cannot be done now, in one line; None: it can."""
        return situation.lacks(self.needs)


def words(values: Mapping[str, str | None]) -> Choices:
    """The same choices whatever happens: each with what it stands for."""
    choices = [(value, about or "") for value, about in values.items()]
    return lambda offers: choices


# fmt: off
ACTIONS: tuple[Action, ...] = (
    Action("stop", "Stop", "End the reply here and keep what came, or stop loading a pair.",
           REPLY, ("escape",), "stop", needs=("working",)),
    Action("regenerate", "Regenerate",
           "Another reply to the same prompt; the old one stays beside it.",
           REPLY, ("ctrl+r", "r"), "regenerate", aliases=("retry",), needs=("turns", "idle")),
    Action("edit", "Edit and resend",
           "Change a prompt and send it again; what was said before stays as another version.",
           REPLY, ("e",), "edit", "[TEXT]", needs=("turns", "idle")),
    Action("continue", "Continue", "Go on with a reply that was stopped or cut off.",
           REPLY, ("c",), "continue", aliases=("resume",), needs=("replied", "idle")),
    Action("older", "Older version", "Show the version of this turn that came before.",
           REPLY, ("left",), "older", needs=("turns", "idle")),
    Action("newer", "Newer version", "Show the version of this turn that came after.",
           REPLY, ("right",), "newer", needs=("turns", "idle")),
    Action("copy", "Copy", "Copy the last reply or the chosen turn; with FILE, write it there.",
           REPLY, ("ctrl+y", "y"), "copy", "[FILE]", needs=("turns",)),
    Action("copy_code", "Copy code", "Copy the last block of code, or the one with this number.",
           REPLY, ("b",), "code", "[NUMBER]", needs=("replied",)),
    Action("copy_selection", "Copy selection", "Copy the text that is selected with the mouse.",
           REPLY, ("Y",), "selection", screen=True),

    Action("new", "New conversation", "Begin a new one; this one is kept.",
           CHAT, ("ctrl+n",), "new", needs=("idle",)),
    Action("chats", "Conversations", "List, open, rename, delete and export conversations.",
           CHAT, ("ctrl+o",), "chats", "[NUMBER]", lambda offers: offers.chats(),
           aliases=("open",), needs=("idle",)),
    Action("search", "Search", "Find conversations by words in them.",
           CHAT, ("ctrl+f",), "search", "[WORDS]", needs=("idle",)),
    Action("rename", "Rename", "Give this conversation another title.",
           CHAT, ("n",), "rename", "[TITLE]", needs=("chat",)),
    Action("fork", "Fork", "Go on from the chosen turn in a new conversation.",
           CHAT, ("f",), "fork", needs=("turns", "idle")),
    Action("export", "Export", "Write this conversation to a file: Markdown, or JSON by its name.",
           CHAT, ("x",), "export", "[FILE]", needs=("turns",)),
    Action("delete", "Delete", "Delete this conversation; undo brings it back.",
           CHAT, ("X",), "delete", needs=("chat", "idle")),
    Action("undo", "Undo delete", "Bring back what was deleted last.",
           CHAT, ("u",), "undo", needs=("idle",)),
    Action("system", "System prompt", "What the model is told before this conversation.",
           CHAT, ("i",), "system", "[TEXT]"),
    Action("sampling", "Sampling", "How this conversation draws tokens.",
           CHAT, ("s",), "sampling", "[NAME VALUE]", words(SAMPLING), aliases=("set",)),
    Action("think", "Reasoning on or off",
           "Whether the model reasons before it answers, where it has a switch for that.",
           CHAT, ("h",), "think", "[auto|on|off]", words(THINK)),

    Action("tuning", "Tuning", "Go to the sliders of depth, method, rule and temperature.",
           SPECULATION, ("ctrl+g",), "tune", screen=True),
    Action("depth", "Depth", "Tokens to draft in a round, from the next one on.",
           SPECULATION, ("d",), "depth", "[auto|0..32]", words(DEPTHS)),
    Action("deeper", "Deeper", "Draft one token more.",
           SPECULATION, ("+",), "deeper", extra_keys=("=", "alt+up")),
    Action("shallower", "Shallower", "Draft one token less.",
           SPECULATION, ("-",), "shallower", extra_keys=("_", "alt+down")),
    Action("method", "Method", "Who drafts, from the next round on; alone, the next in the list.",
           SPECULATION, ("ctrl+s", "m"), "method", f"[{'|'.join(METHODS)}]", words(METHODS)),
    Action("rule", "Acceptance rule",
           "Which drafts stand, from the next round on; each rule is exact.",
           SPECULATION, ("k",), "rule", f"[{'|'.join(RULES)}]", words(RULES)),
    Action("temperature", "Temperature", "0 takes the likeliest token, more is bolder.",
           SPECULATION, ("t",), "temperature", "[NUMBER]", words(TEMPERATURES)),
    Action("compare", "Plain against speculative",
           "Replay the last prompt both ways: speeds, energy, and whether the text is equal.",
           SPECULATION, ("v",), "compare", f"[{'|'.join(COMPARED)}]", words(COMPARED),
           aliases=("ab",), needs=("turns", "idle")),
    Action("models", "Models", "Switch the target or the draft, or fetch another pair.",
           SPECULATION, ("ctrl+l",), "models", "[TARGET [DRAFT]]", lambda offers: offers.models(),
           aliases=("model",)),

    Action("tint", "Token tint", "Show which tokens were drafted and accepted, and by whom.",
           VIEW, ("ctrl+t",), "tint", screen=True),
    Action("panel", "Panel", "Show or hide the live panel.",
           VIEW, ("ctrl+b", "p"), "panel", screen=True),
    Action("reasoning", "Open reasoning", "Open or fold what the model thought before it answered.",
           VIEW, ("z",), "reasoning", screen=True),
    Action("follow", "Follow", "Go to the end, and stay there while text comes.",
           VIEW, ("G",), "follow", extra_keys=("end",), screen=True),
    Action("theme", "Theme", "Other colours; the choice is remembered.",
           VIEW, ("T",), "theme", "[NAME]", lambda offers: offers.themes(), screen=True),
    Action("editor", "Editor", "Write the prompt in $VISUAL or $EDITOR.",
           VIEW, ("ctrl+x",), "editor", screen=True),

    Action("palette", "Commands", "Everything in one list to search.",
           MACSPEC, ("ctrl+p",), "palette", screen=True),
    Action("help", "Help", "Keys and commands, and what the panel shows.",
           MACSPEC, ("?",), "help", extra_keys=("f1",)),
    Action("stats", "Numbers", "All numbers of the panel, live or of the last reply.",
           MACSPEC, ("N",), "stats"),
    Action("about", "About", "What macspec is, and which pair fits this machine.",
           MACSPEC, ("w",), "about", aliases=("welcome",)),
    Action("report", "Report a problem",
           "Versions, chip, pair and the end of the log, without any text of yours.",
           MACSPEC, ("R",), "report"),
    Action("leave", "Leave", "Close macspec, as Ctrl+C twice does; everything is kept.",
           MACSPEC, ("ctrl+q",), "quit", aliases=("exit", "q", "bye")),
)
# fmt: on

BY_ID = {action.id: action for action in ACTIONS}
BY_SLASH = {name: action for action in ACTIONS for name in (action.slash, *action.aliases)}
