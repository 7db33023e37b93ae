"""The form for a conversation's own settings: system prompt and sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.widget import Widget
from textual.widgets import Input, Label, TextArea

from macspec.config.schema import Config, Setting
from macspec.plaintext import neutral

from ..actions import SAMPLING
from .box import Box

SYSTEM = "Instructions to the model before the conversation; empty for none."


class Field(Input):
    """One setting, or its ``default`` if nothing is set; Up and Down go to its neighbours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, setting: Setting, value: object, default: object) -> None:
        self.setting, self.given = setting, _text(value)
        super().__init__(
            self.given,
            id=setting.name,
            placeholder=_text(default) or "random",
            compact=True,
            select_on_focus=False,
        )

    def read(self) -> Any:
        """The value; None: nothing is set; ValueError: it cannot be used."""
        text = self.value.strip()
        return self.setting.kind.from_text(text) if text else None

    @property
    def wrong(self) -> str:
        """What is wrong with it, in one line; empty: nothing."""
        try:
            self.read()
        except ValueError:
            return f"{self.setting.label} must be {self.setting.kind.says}"
        return ""


class ChatSettingsForm(Box[tuple[str, dict[str, Any]] | None]):
    """The form; its result is the system prompt and the sampling, or None if cancelled.

    Args:
        sampling: what the conversation sets for itself, where that differs from the settings.
        config: the settings, which give the defaults.
        focus: the field to start in: ``system``, or one of ``SAMPLING``.
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
        Binding("ctrl+s", "save", "Save"),
    ]

    def __init__(
        self, system: str, sampling: Mapping[str, Any], config: Config, *, focus: str = "system"
    ) -> None:
        super().__init__()
        self._system, self._sampling = system, sampling
        self._first, self._default = focus, config.sampling
        self._shown_system = ""
        self._warned = False

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Label("System prompt", markup=False)
            text = neutral(self._system)
            yield TextArea(text, id="system", compact=True, show_line_numbers=False)
            for name, setting in SAMPLING.items():
                with Horizontal():
                    yield Label(setting.label, classes="name", markup=False)
                    yield Field(setting, self._sampling.get(name), getattr(self._default, name))
                    yield Label(setting.kind.says, classes="range", markup=False)

    def on_mount(self) -> None:
        self.hint(
            ("Ctrl+S", "save"), ("Esc", "cancel"), ("↑ ↓ Tab", "fields"), ("empty", "default")
        )
        system = self.query_one("#system", TextArea)
        system.move_cursor(system.document.end)
        self._shown_system = system.text
        self.query_one(f"#{self._first}").focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self._explain(event.widget)

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _edited(self, event: Input.Changed | TextArea.Changed) -> None:
        self._warned = False
        it = event.control
        if isinstance(it, Field):
            it.set_class(bool(it.wrong), "-invalid")
        if it.has_focus:
            self._explain(it)

    @on(Input.Submitted)
    def action_save(self) -> None:
        """Close with the values of the form, if all are valid."""
        for it in self.query(Field):
            if it.wrong:
                it.focus()
                self._explain(it)
                return
        text = self.query_one("#system", TextArea).text
        system = self._system if text == self._shown_system else text
        sampling = dict(self._sampling)
        for it in self.query(Field):
            sampling[it.setting.name] = it.read()
            if sampling[it.setting.name] is None:
                del sampling[it.setting.name]
        self.dismiss((system, sampling))

    def action_leave(self) -> None:
        """Cancel; unsaved changes need a second Esc."""
        if not self._warned and self._touched():
            self._warned = True
            self.status("Esc again discards the changes, Ctrl+S saves them", "warning")
        else:
            self.dismiss(None)

    def _explain(self, it: Widget) -> None:
        """Say what a field is for, or what is wrong with it."""
        if isinstance(it, Field):
            self.status(it.wrong or it.setting.about, "error" if it.wrong else "")
        elif it.id == "system":
            self.status(SYSTEM)

    def _touched(self) -> bool:
        typed = self.query_one("#system", TextArea).text
        return typed != self._shown_system or any(it.value != it.given for it in self.query(Field))


def _text(value: Any) -> str:
    """A value as typed; stored values may come from anyone."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "" if value is None else neutral(str(value)).replace("\n", " ")
