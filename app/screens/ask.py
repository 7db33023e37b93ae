"""One question: for a line of text, or for a yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from .box import Box

SMALL = """
    {name} {{
        & > #box, &.-tight > #box {{ width: 100%; max-width: 76; height: auto; max-height: 100%; }}
        #question {{ height: auto; margin-bottom: 1; }}
    }}
"""


class Ask(Box[str | None]):
    """Asks for a line of text; the result is None where nobody wants to say.

    Args:
        question: neutral text.
        value: what stands there to be changed.
        check: says what is wrong with an answer, in one line; empty where nothing is.
        wrong: what was wrong with the last answer.
    """

    DEFAULT_CSS = SMALL.format(name="Ask")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(
        self,
        question: str,
        value: str = "",
        *,
        title: str = "",
        placeholder: str = "",
        check: Callable[[str], str] = lambda answer: "",
        wrong: str = "",
    ) -> None:
        super().__init__()
        self._question, self._value, self._placeholder = question, value, placeholder
        self._check, self._wrong = check, wrong
        self.heading = title

    def inside(self) -> ComposeResult:
        yield Static(self._question, id="question", markup=False)
        yield Input(self._value, placeholder=self._placeholder, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self.hint(("Enter", "done"), ("Esc", "cancel"))
        self.tell(self._wrong, "error")

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self._value:
            self.tell("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if wrong := self._check(event.value):
            self.tell(wrong, "error")
        else:
            self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Confirm(Box[bool]):
    """Asks for a yes: ``y`` or Enter; ``n`` and Esc are a no.

    Args:
        question: neutral text.
        yes, no: what the keys do, in a word or two.
    """

    DEFAULT_CSS = SMALL.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, question: str, *, title: str = "", yes: str = "yes", no: str = "no") -> None:
        super().__init__()
        self._question, self._yes, self._no = question, yes, no
        self.heading = title

    def inside(self) -> ComposeResult:
        yield Static(self._question, id="question", markup=False)

    def on_mount(self) -> None:
        self.hint(("y", self._yes), ("n", self._no))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
