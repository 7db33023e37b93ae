"""What one conversation sets for itself: the system prompt, and how tokens are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.widgets import Input, Label, TextArea

from macspec.config import Config
from macspec.config.schema import SETTINGS, Setting
from macspec.plaintext import neutral

from .box import Box

FIELDS: dict[str, Setting] = {
    key.removeprefix("sampling."): setting
    for key, setting in SETTINGS.items()
    if key.startswith("sampling.")
}
"""What can be set, by its name in the conversation's sampling."""

SYSTEM = "Instructions to the model before the conversation; empty for none."


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a conversation sets."""

    system: str
    sampling: Mapping[str, Any]
    """What is not named is as in the settings."""


class Field(Input):
    """One setting; Up and Down go to its neighbours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]


class ChatSettingsForm(Box[ChatSettings | None]):
    """A form for them; the result is None where nothing is to change.

    Args:
        set: what the conversation sets now.
        config: the settings, for what it does not set.
        focus: the field to begin with: ``system``, or one of ``FIELDS``.
    """

    heading = "This conversation"

    DEFAULT_CSS = """
    ChatSettingsForm {
        VerticalScroll { height: 1fr; }
        TextArea { height: 5; margin-bottom: 1; padding: 0 1; }
        Horizontal { height: 1; }
        .name { width: 20; }
        Input { width: 14; padding: 0 1; }
        .range { width: 1fr; padding-left: 2; color: $text-muted; text-wrap: nowrap;
                 text-overflow: ellipsis; }
        &.-tight TextArea { height: 3; }
        &.-short TextArea { height: 2; margin-bottom: 0; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel"),
        Binding("ctrl+s", "keep", "Keep"),
    ]

    def __init__(self, set: ChatSettings, config: Config, *, focus: str = "system") -> None:
        super().__init__()
        self._set, self._first = set, focus
        self._usual = {name: getattr(config.sampling, name) for name in FIELDS}
        self._shown_system = ""
        self._warned = False

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Label("System prompt", markup=False)
            yield TextArea(
                neutral(self._set.system), id="system", compact=True, show_line_numbers=False
            )
            for name, setting in FIELDS.items():
                with Horizontal():
                    yield Label(name.replace("_", " "), classes="name", markup=False)
                    yield Field(
                        _text(self._set.sampling.get(name)),
                        id=name,
                        placeholder=_text(self._usual[name]) or "random",
                        compact=True,
                        select_on_focus=False,
                    )
                    yield Label(setting.kind.says, classes="range", markup=False)

    def on_mount(self) -> None:
        self.hint(
            ("Ctrl+S", "keep"), ("Esc", "cancel"), ("↑ ↓ Tab", "fields"), ("empty", "as usual")
        )
        system = self.query_one("#system", TextArea)
        system.move_cursor(system.document.end)
        self._shown_system = system.text
        self.query_one(f"#{self._first}").focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self._explain(event.widget.id or "")

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _edited(self, event: Input.Changed | TextArea.Changed) -> None:
        self._warned = False
        it = event.control
        if isinstance(it, Field):
            it.set_class(self._wrong(it) is not None, "-invalid")
        if it.has_focus:
            self._explain(it.id or "")

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        """Leave with what is in the form, if all of it can be used."""
        for it in self.query(Field):
            if self._wrong(it) is not None:
                it.focus()
                self._explain(it.id or "")
                return
        self.dismiss(self._filled())

    def action_leave(self) -> None:
        """Leave without a change; what was typed takes a second Esc."""
        if not self._warned and self._touched():
            self._warned = True
            self.tell("Esc again discards the changes, Ctrl+S saves them", "warning")
        else:
            self.dismiss(None)

    def _explain(self, name: str) -> None:
        """Say what a field is for, or what is wrong with what stands in it."""
        if name == "system":
            self.tell(SYSTEM)
        elif name in FIELDS:
            wrong = self._wrong(self.query_one(f"#{name}", Field))
            self.tell(wrong or FIELDS[name].about, "error" if wrong else "")

    def _wrong(self, it: Field) -> str | None:
        """What is wrong with a field, in one line; None where nothing is."""
        setting = FIELDS[it.id or ""]
        try:
            self._value(it)
        except ValueError:
            return f"{(it.id or '').replace('_', ' ')} must be {setting.kind.says}"
        return None

    def _value(self, it: Field) -> Any:
        text = it.value.strip()
        return FIELDS[it.id or ""].kind.from_text(text) if text else None

    def _filled(self) -> ChatSettings:
        text = self.query_one("#system", TextArea).text
        system = self._set.system if text == self._shown_system else text
        sampling = {name: value for name, value in self._set.sampling.items() if name not in FIELDS}
        for it in self.query(Field):
            if (value := self._value(it)) is not None:
                sampling[it.id or ""] = value
        return ChatSettings(system, sampling)

    def _touched(self) -> bool:
        given = {name: _text(self._set.sampling.get(name)) for name in FIELDS}
        typed = {it.id: it.value for it in self.query(Field)}
        return typed != given or self.query_one("#system", TextArea).text != self._shown_system


def _text(value: Any) -> str:
    """A value as it is typed; stored ones may be anybody's."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "" if value is None else neutral(str(value)).replace("\n", " ")
