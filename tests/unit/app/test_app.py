"""The app shares a namespace with Textual."""

from __future__ import annotations

from textual.app import App

from macspec.app.actions import ACTIONS
from macspec.app.app import MacspecApp
from macspec.app.commands import Commands
from macspec.app.dialogs import Boxes
from macspec.app.lineview import LineView
from macspec.app.looks import Looks

OURS = {"TITLE", "BINDINGS", "CSS_PATH", "ENABLE_COMMAND_PALETTE", "ESCAPE_TO_MINIMIZE"}
OURS |= {"get_default_screen", "_handle_exception", "copy_to_clipboard"}
"""What takes the place of Textual's own."""

MADE = {"_decorated_handlers", "_computes", "_css_type_name", "_css_type_names", "_reactives"}
MADE |= {"_inherit_css", "_inherit_bindings", "_inherit_component_classes", "_merged_bindings"}
"""What Textual gives every class."""


def test_the_app_takes_no_name_of_textual() -> None:
    theirs = {name for each in App.__mro__ for name in vars(each)}
    ours = {name for name in vars(MacspecApp) if not name.startswith("__")} - MADE
    assert ours & theirs == OURS


def test_every_action_has_one_command_in_both_front_ends() -> None:
    for action in ACTIONS:
        name = f"do_{action.id}"
        screen = (Commands, MacspecApp, Looks, Boxes)
        in_lines = [part for part in (Commands, LineView) if hasattr(part, name)]
        on_screen = [part for part in screen if hasattr(part, name)]
        assert len(on_screen) == 1, action.id
        assert len(in_lines) == (not action.screen), action.id
