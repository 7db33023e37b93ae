"""The main screen."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.events import Key, Paste, Resize
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..actions import BY_ID
from ..keys import Keys, everywhere
from ..panel.panel import Panel, Summary
from ..panel.sliders import Sliders
from ..prompt.prompt import Prompt
from ..transcript.transcript import Transcript
from ..widgets.chrome import KeyLine, TitleLine, Welcome

LEAST = (40, 12)
"""Columns and rows below which there is only a line that asks for more room."""

WIDE = 100
"""Columns from which on the panel is beside the conversation."""


BOTH = 72
"""Columns from which on the whole panel leaves room for the conversation."""


class Main(Screen[None]):
    """The conversation, the prompt and the panel.

    CSS classes control what is shown: ``-no-panel``, ``-whole`` (the whole panel on a narrow
    screen), ``-sliders`` and ``-empty``, besides those for the size.

    Args:
        send_key: as ``Prompt``.
        panel: whether the panel is shown.
    """

    class Made(Message):
        """All widgets are mounted."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - as Textual types it
        (0, "-cramped"),
        (LEAST[0], "-narrow"),
        (WIDE, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (LEAST[1], "-low"),
        (20, "-high"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "begin_command", show=False),
    ]

    title_line = getters.query_one(TitleLine)
    transcript = getters.query_one(Transcript)
    welcome = getters.query_one(Welcome)
    panel = getters.query_one(Panel)
    summary = getters.query_one(Summary)
    prompt = getters.query_one(Prompt)
    key_line = getters.query_one(KeyLine)

    def __init__(self, keys: Keys, send_key: str, *, panel: bool) -> None:
        super().__init__(id="main", classes="-empty" if panel else "-empty -no-panel")
        self._keys, self._send_key = keys, send_key
        bindings = [
            Binding(key, f"app.do('{id}')", BY_ID[id].title, priority=everywhere(key))
            for id, key in keys
        ]
        for binding in Binding.make_bindings(bindings):
            self._bindings._add_binding(binding)

    def compose(self) -> ComposeResult:
        yield Static("", id="room", markup=False)
        with Vertical(id="all"):
            yield TitleLine()
            with Horizontal(id="middle"):
                with Container(id="conversation"):
                    yield Transcript()
                    yield Welcome()
                with Vertical(id="side"):
                    yield Panel()
                    yield Sliders(hint=f"{self._keys.shown('tuning')} to tune")
            yield Sliders(id="strip")
            yield Summary()
            yield Prompt(send_key=self._send_key)
            yield KeyLine()

    def on_mount(self) -> None:
        self.transcript.elsewhere = self.key_elsewhere
        self.prompt.focus()
        self.post_message(self.Made())

    def on_resize(self, event: Resize) -> None:
        size = event.size
        columns, rows = LEAST
        self.query_one("#room", Static).update(
            f"macspec needs {columns}x{rows}; this is {size.width}x{size.height}"
        )
        self.set_class(size.width >= BOTH, "-both")
        if self.focused is None:
            self.call_after_refresh(self._focus_again)

    @property
    def there(self) -> bool:
        """Whether its widgets are mounted: on exit they go first."""
        return all(self.query(each) for each in (Transcript, Sliders, Prompt, KeyLine))

    def _focus_again(self) -> None:
        if self.focused is None and self.there:
            self.prompt.focus()

    @property
    def sliders(self) -> Sliders:
        """The sliders that are, or would be, visible."""
        wide = self.has_class("-wide") and not self.has_class("-no-panel")
        return self.query_one("#side Sliders" if wide else "#strip", Sliders)

    @property
    def beside(self) -> bool:
        """Whether the whole panel is shown, not only its line."""
        return self.has_class("-wide") or self.has_class("-whole")

    def show_panel(self, whole: bool, *, hidden: bool) -> None:
        """Show the whole panel, or the usual one, or none."""
        self.set_class(hidden, "-no-panel", update=False)
        self.set_class(whole, "-whole", update=False)
        # The styles of all other widgets stay, and computing them anew is what would take time.
        self.app.stylesheet.update_nodes(self.query("#side, #conversation, Summary, #strip"))

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self._fold_strip)

    def _fold_strip(self) -> None:
        if self.there and not self.query_one("#strip").has_focus:
            self.remove_class("-sliders")

    def on_paste(self, event: Paste) -> None:
        """A paste that no widget takes goes into the prompt."""
        self.prompt.area.paste(event.text)

    def key_elsewhere(self, widget: Widget, event: Key) -> bool:
        """Whether a key that reached a widget is not meant for it: a slash begins a command in the
        prompt, and keys typed in the same burst follow it there."""
        if event.key == "slash" and self.focused is widget:
            self.action_begin_command()
            self.set_focus(self.prompt.area)  # At once: ``focus`` is a moment late.
        elif self.focused in (None, widget):
            return False
        else:
            self.prompt.area.post_message(Key(event.key, event.character))
        event.stop()
        event.prevent_default()
        return True

    def action_begin_command(self) -> None:
        """A slash outside of the prompt starts a command in it."""
        self.prompt.focus()
        if not self.prompt.value:
            self.prompt.load("/")
