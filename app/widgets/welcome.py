"""What stands where no conversation does yet."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from macspec.plaintext import one_line

from ..chat.picker import PRIVATE, WHAT, Proposal
from ..keys import Keys


class Welcome(Static):
    """A card at the first run, and later only the keys to begin with."""

    DEFAULT_CSS = """
    Welcome {
        width: 1fr;
        height: auto;
        max-height: 100%;
        max-width: 76;
        margin: 1 2;
        color: $text-muted;
        &.-card {
            border: round $primary;
            border-title-color: $primary;
            padding: 0 1;
            color: $text;
        }
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def show_keys(self, keys: Keys) -> None:
        """Only what to begin with."""
        self.remove_class("-card")
        self.border_title = None
        rows = [
            (keys.shown("chats"), "goes on with an earlier conversation"),
            (keys.shown("models"), "chooses the models"),
            ("/", "lists the commands"),
            (keys.shown("help"), "explains the keys and the panel"),
        ]
        wide = max(len(key) for key, _ in rows)
        lines = [Content.assemble((key.ljust(wide), "bold"), f"  {what}") for key, what in rows]
        self.update(Content("\n").join([Content("Write, and send it with Enter."), *lines]))

    def show_card(self, keys: Keys, proposal: Proposal) -> None:
        """What macspec is, and which real pair fits this machine."""
        self.add_class("-card")
        self.border_title = Content("Welcome to macspec")
        self.update(card(keys, proposal))


def card(keys: Keys, proposal: Proposal) -> Content:
    """What macspec is, which real pair fits this machine, and how to get it."""
    how = f"{keys.shown('models')} fetches it, or any other; {keys.shown('help')} is the help."
    return Content("\n\n").join(
        [Content(one_line(part)) for part in (WHAT, *proposal.lines(), how, PRIVATE)]
    )
