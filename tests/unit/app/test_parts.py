"""The app's parts share one namespace, with each other and with Textual."""

from __future__ import annotations

from itertools import combinations

from textual.app import App

from macspec.app.app import MacspecApp
from macspec.app.base import Base

OURS = {"TITLE", "BINDINGS", "CSS_PATH", "ENABLE_COMMAND_PALETTE", "ESCAPE_TO_MINIMIZE"}
OURS |= {"get_default_screen", "_handle_exception", "copy_to_clipboard"}
"""What takes the place of Textual's own."""

MADE = {"_decorated_handlers", "_computes", "_css_type_name", "_css_type_names", "_reactives"}
MADE |= {"_inherit_css", "_inherit_bindings", "_inherit_component_classes", "_merged_bindings"}
"""What Textual gives every class."""

PARTS = [part for part in MacspecApp.__mro__ if issubclass(part, Base)]


def names(part: type) -> set[str]:
    return {name for name in vars(part) if not name.startswith("__")} - MADE


def test_no_part_takes_a_name_of_textual() -> None:
    theirs = {name for each in App.__mro__ for name in vars(each)}
    assert {name for part in PARTS for name in names(part)} & theirs == OURS


def test_a_name_is_of_one_part_and_others_only_announce_it() -> None:
    for one, other in combinations(PARTS, 2):
        for name in names(one) & names(other):
            assert announces(one, name) or announces(other, name), (one, other, name)


def announces(part: type, name: str) -> bool:
    """Whether a part only says that another one has it."""
    code = getattr(vars(part)[name], "__code__", None)
    return code is not None and "NotImplementedError" in code.co_names
