"""Everything the user can do: one table behind keys, slash commands, the palette and the help.

It imports neither Textual nor MLX, so line mode has the same commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from macspec.choices import EFFORTS, MAX_DEPTH, METHODS, RULES
from macspec.config.schema import section

BUSY = "a reply is being generated: wait for it, or stop it with Esc"

REASONS = {
    "working": "there is nothing to stop",
    "idle": BUSY,
    "turns": "this conversation is empty",
    "replied": "there is no reply yet",
    "chat": "a conversation is saved with its first message",
}
"""Why an action that needs a field of ``Situation`` is not possible now."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A snapshot of a conversation."""

    busy: bool = False
    """A reply is streaming, or about to."""
    loading: bool = False
    """A pair is being loaded."""
    turns: bool = False
    """There are messages."""
    replied: bool = False
    """There is a reply."""
    chat: bool = False
    """The conversation is in the store."""

    @property
    def idle(self) -> bool:
        return not self.busy

    @property
    def working(self) -> bool:
        """There is something to stop."""
        return self.busy or self.loading


COMPARED = {
    "greedy": "always the most likely token",
    "keyed": "the same seed for both",
    "block": "the usual rule; texts may differ",
    "match": "the classic rule; texts may differ",
}
"""Rules under which plain and speculative replies can be compared."""
DEPTHS = {
    "auto": "what pays off here",
    "0": "plain decoding",
    **dict.fromkeys(map(str, range(1, MAX_DEPTH + 1))),
}
SAMPLING = section("sampling")
"""What ``/sampling`` can set, by name."""
TEMPERATURES = {"0": "deterministic", "0.4": "careful", "0.7": "usual", "1": "as trained"}
THINK = {
    "auto": "the model's default",
    "on": "reason first",
    "off": "answer directly",
    **{effort: f"{effort} effort" for effort in EFFORTS},
}

REPLY, CHAT, SPECULATION, VIEW, MACSPEC = GROUPS = (
    "Reply",
    "Conversation",
    "Speculation and models",
    "View",
    "macspec",
)


Choice = tuple[str, str]
"""An argument and a short description of it. Untrusted."""


class Offers(Protocol):
    """Gives choices for arguments that only a front end knows; asked while the user types."""

    @property
    def situation(self) -> Situation: ...

    def themes(self) -> Sequence[Choice]: ...

    def models(self) -> Sequence[Choice]: ...

    def chats(self) -> Sequence[Choice]: ...


Choices = Callable[[Offers], Sequence[Choice]]


@dataclass(frozen=True, slots=True)
class Action:
    """Something the user can do; ``do_<id>(argument)`` of ``Commands`` or of a view does it.

    Keys give an empty argument, a slash command what follows its name.
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
    """What may follow the slash command; in brackets if optional."""
    choices: Choices | None = None
    """Values of the argument to offer as completions."""
    path: str = ""
    """What kind of path the argument may be: a ``file`` to write, or a ``model``'s folder."""
    extra_keys: tuple[str, ...] = ()
    """Keys that not every terminal delivers."""
    aliases: tuple[str, ...] = ()
    """Other names of the slash command, which the help does not list."""
    needs: tuple[str, ...] = ()
    """Fields of ``Situation`` that must be true."""
    screen: bool = False
    """Whether it is for the screen only, not for line mode."""

    @property
    def usage(self) -> str:
        """The slash command with its argument."""
        return f"/{self.slash} {self.argument}".rstrip()

    def refusal(self, situation: Situation) -> str | None:
        """Why it is not possible now, in one line; None: it is."""
        return next((REASONS[need] for need in self.needs if not getattr(situation, need)), None)


def words(values: Mapping[str, str | None]) -> Choices:
    """Fixed choices, each with its description."""
    choices = [(value, about or "") for value, about in values.items()]
    return lambda offers: choices


# fmt: off
ACTIONS: tuple[Action, ...] = (
    Action("stop", "Stop", "Stop the reply and keep what was generated, or stop loading a pair.",
           REPLY, ("escape",), "stop", needs=("working",)),
    Action("regenerate", "Regenerate",
           "Generate another reply to the same prompt; the old one stays as a version.",
           REPLY, ("ctrl+r", "r"), "regenerate", aliases=("retry",), needs=("turns", "idle")),
    Action("edit", "Edit and resend",
           "Edit a prompt and send it again; the conversation so far stays as a version.",
           REPLY, ("e",), "edit", "[TEXT]", needs=("turns", "idle")),
    Action("continue", "Continue", "Continue a reply that was stopped or cut off.",
           REPLY, ("c",), "continue", aliases=("resume",), needs=("replied", "idle")),
    Action("older", "Previous version", "Show the previous version of this turn.",
           REPLY, ("left",), "older", needs=("turns", "idle")),
    Action("newer", "Next version", "Show the next version of this turn.",
           REPLY, ("right",), "newer", needs=("turns", "idle")),
    Action("copy", "Copy", "Copy the selected turn or the last reply; with FILE, to a file.",
           REPLY, ("ctrl+y", "y"), "copy", "[FILE]", path="file", needs=("turns",)),
    Action("copy_code", "Copy code", "Copy the last code block of a reply, or the one with NUMBER.",
           REPLY, ("b",), "code", "[NUMBER]", needs=("replied",)),

    Action("new", "New conversation", "Start a new conversation; this one is kept.",
           CHAT, ("ctrl+n",), "new", aliases=("clear",), needs=("idle",)),
    Action("chats", "Conversations", "List, open, rename, delete and export conversations.",
           CHAT, ("ctrl+o",), "chats", "[NUMBER]", lambda offers: offers.chats(),
           aliases=("open",), needs=("idle",)),
    Action("search", "Search", "Search all conversations.",
           CHAT, ("ctrl+f",), "search", "[WORDS]", needs=("idle",)),
    Action("find", "Find", "Find words in this conversation; without WORDS, the match before.",
           CHAT, ("F",), "find", "[WORDS]", needs=("turns",)),
    Action("rename", "Rename", "Give this conversation another title.",
           CHAT, ("n",), "rename", "[TITLE]", needs=("chat",)),
    Action("fork", "Fork", "Continue from the selected turn in a new conversation.",
           CHAT, ("f",), "fork", needs=("turns", "idle")),
    Action("export", "Export", "Write this conversation to a file: Markdown, or JSON (*.json).",
           CHAT, ("x",), "export", "[FILE]", path="file", needs=("turns",)),
    Action("delete", "Delete", "Delete this conversation; undo restores it.",
           CHAT, ("X",), "delete", needs=("chat", "idle")),
    Action("undo", "Undo delete", "Restore the conversation that was deleted last.",
           CHAT, ("u",), "undo", needs=("idle",)),
    Action("system", "System prompt", "Set the system prompt of this conversation.",
           CHAT, ("i",), "system", "[TEXT]"),
    Action("sampling", "Sampling", "Change the sampling settings of this conversation.",
           CHAT, ("s",), "sampling", "[NAME VALUE]",
           words({name: setting.help for name, setting in SAMPLING.items()}), aliases=("set",)),
    Action("think", "Reasoning",
           "Turn the model's reasoning on or off, or set its effort, where the model can.",
           CHAT, ("h",), "think", "[auto|on|off|low|medium|high]", words(THINK)),

    Action("tuning", "Sliders", "Go to the sliders for depth, method, rule and temperature.",
           SPECULATION, ("ctrl+g",), "tune", screen=True),
    Action("depth", "Depth", "Set how many tokens to draft per round (takes effect next round).",
           SPECULATION, ("d",), "depth", f"[auto|0..{MAX_DEPTH}]", words(DEPTHS)),
    Action("deeper", "Deeper", "Draft one more token per round.",
           SPECULATION, ("+",), "deeper", extra_keys=("=", "alt+up")),
    Action("shallower", "Shallower", "Draft one token fewer per round.",
           SPECULATION, ("-",), "shallower", extra_keys=("_", "alt+down")),
    Action("method", "Method", "Choose the drafter (takes effect next round); no argument cycles.",
           SPECULATION, ("ctrl+s", "m"), "method", f"[{'|'.join(METHODS)}]", words(METHODS)),
    Action("rule", "Acceptance rule",
           "Choose the acceptance rule (takes effect next round); every rule is exact.",
           SPECULATION, ("k",), "rule", f"[{'|'.join(RULES)}]", words(RULES)),
    Action("temperature", "Temperature", "Set the temperature; 0 is deterministic.",
           SPECULATION, ("t",), "temperature", "[NUMBER]", words(TEMPERATURES)),
    Action("compare", "Compare with plain decoding",
           "Replay the last prompt both ways to compare speed, energy and text.",
           SPECULATION, ("v",), "compare", f"[{'|'.join(COMPARED)}]", words(COMPARED),
           aliases=("ab",), needs=("turns", "idle")),
    Action("setup", "Set up a pair", "Load or download the best pair for this machine.",
           SPECULATION, ("S",), "setup", needs=("idle",)),
    Action("models", "Models", "Switch the target or draft model, or download another pair.",
           SPECULATION, ("ctrl+l",), "models", "[TARGET [DRAFT]]", lambda offers: offers.models(),
           path="model", aliases=("model",)),

    Action("tint", "Token highlighting", "Highlight accepted draft tokens, by drafter.",
           VIEW, ("ctrl+t",), "tint", screen=True),
    Action("panel", "Panel", "Show or hide the live panel.",
           VIEW, ("ctrl+b", "p"), "panel", screen=True),
    Action("reasoning", "Show reasoning", "Unfold or fold the model's reasoning.",
           VIEW, ("z",), "reasoning", screen=True),
    Action("follow", "Follow", "Scroll to the end, and stay there while text arrives.",
           VIEW, ("G",), "follow", extra_keys=("end",), screen=True),
    Action("theme", "Theme", "Change the colours; the choice is saved.",
           VIEW, ("T",), "theme", "[NAME]", lambda offers: offers.themes(), screen=True),
    Action("copy_selection", "Copy selection", "Copy the text that is selected with the mouse.",
           VIEW, ("Y",), "selection", screen=True),
    Action("editor", "Editor", "Write the prompt in $VISUAL or $EDITOR.",
           VIEW, ("ctrl+x",), "editor", screen=True),

    Action("palette", "Commands", "Search all commands.",
           MACSPEC, ("ctrl+p",), "palette", screen=True),
    Action("help", "Help", "Show all keys and commands, and explain the panel.",
           MACSPEC, ("?",), "help", extra_keys=("f1",)),
    Action("stats", "Statistics", "Show all numbers of the panel, live or for the last reply.",
           MACSPEC, ("N",), "stats"),
    Action("about", "About", "Show what macspec is, and which pair fits this machine.",
           MACSPEC, ("w",), "about", aliases=("welcome",)),
    Action("report", "Report a problem",
           "Write a report with versions, chip, pair and log, but none of your text.",
           MACSPEC, ("R",), "report"),
    Action("suspend", "Suspend", "Return to the shell; fg brings macspec back.",
           MACSPEC, ("ctrl+z",), "suspend", screen=True),
    Action("leave", "Quit", "Quit macspec, as Ctrl+C twice does; everything is saved.",
           MACSPEC, ("ctrl+q",), "quit", aliases=("exit", "q", "bye")),
)
# fmt: on

BY_GROUP = {group: [it for it in ACTIONS if it.group == group] for group in GROUPS}
BY_ID = {action.id: action for action in ACTIONS}
BY_SLASH = {name: action for action in ACTIONS for name in (action.slash, *action.aliases)}
