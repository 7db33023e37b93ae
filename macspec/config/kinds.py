"""The kinds of value that a setting can have: what each allows, and how a text is read as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

FLAGS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """What values a setting takes."""

    says: str
    """What is allowed, to follow "it must be"."""
    allows: Callable[[Any], bool]
    """Whether a TOML value is allowed; it may also raise ValueError."""
    parse: Callable[[str], Any] = str
    """A text of the command line or the environment -> a TOML value, or ValueError."""
    made: Callable[[Any], Any] = lambda value: value
    """A TOML value that is allowed -> the setting's value."""
    metavar: str = ""
    """How the help of an option shows the value."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Where only some words are allowed: each with a short description, which may be empty."""

    def check(self, value: Any) -> Any:
        """The setting's value from a TOML value, or ValueError."""
        if not self.allows(value):
            raise ValueError(value)
        return self.made(value)

    def from_text(self, text: str) -> Any:
        """The value of a text, or ValueError."""
        return self.check(self.parse(text))


def text(says: str = "a text", *, empty: bool = False) -> Kind:
    """Any text."""
    return Kind(says, lambda value: _text(value) and (empty or value != ""), metavar="TEXT")


def _text(value: Any) -> bool:
    # A surrogate from the environment is not UTF-8: encode raises a ValueError.
    return isinstance(value, str) and value.encode() is not None


def model() -> Kind:
    """A folder, or a Hugging Face id."""
    says = "a folder or a Hugging Face id"
    return Kind(says, text().allows, made=os.path.expanduser, metavar="MODEL")


def file() -> Kind:
    """The path of a file."""
    return Kind("a file", text().allows, made=os.path.expanduser, metavar="FILE")


def flag() -> Kind:
    """True or false."""

    def parse(text: str) -> bool:
        if text.lower() not in FLAGS:
            raise ValueError(text)
        return FLAGS[text.lower()]

    return Kind("true or false", lambda value: isinstance(value, bool), parse)


def one_of(*names: str, described: Mapping[str, str] | None = None) -> Kind:
    """One of some words; ``described``: with what each stands for."""
    choices = described or dict.fromkeys(names, "")
    return Kind(
        f"one of {', '.join(choices)}",
        lambda value: isinstance(value, str) and value in choices,
        metavar=f"{{{','.join(choices)}}}",
        choices=choices,
    )


def one_number_of(*numbers: int) -> Kind:
    """One of some whole numbers."""
    names = [str(number) for number in numbers]
    return Kind(
        f"one of {', '.join(names)}",
        lambda value: type(value) is int and value in numbers,
        int,
        metavar=f"{{{','.join(names)}}}",
    )


def whole(lowest: int, highest: int | None = None, *words: str) -> Kind:
    """A whole number in a range, or one of some words."""
    limits = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"

    def allows(value: Any) -> bool:
        if type(value) is not int:
            return value in words
        return value >= lowest and (highest is None or value <= highest)

    def parse(text: str) -> int | str:
        return text if text in words else int(text)

    return Kind(" or ".join([*words, f"a whole number {limits}"]), allows, parse, metavar="N")


def number(lowest: float, highest: float, *, above: bool = False, zero: bool = False) -> Kind:
    """A number in a range; ``above``: the lowest is left out; ``zero``: 0 is allowed too."""
    low, high = _written(lowest), _written(highest)
    says = f"a number above {low} and at most {high}" if above else f"a number from {low} to {high}"
    if -lowest == highest >= 1e6:
        says = "a number"

    def allows(value: Any) -> bool:
        if type(value) not in (int, float):
            return False
        inside = lowest < value <= highest if above else lowest <= value <= highest
        return inside or (zero and value == 0)

    return Kind(f"0 or {says}" if zero else says, allows, float, float, metavar="X")


def _written(value: float) -> str:
    """Without an exponent."""
    return f"{value:.12f}".rstrip("0").removesuffix(".")


def tables() -> Kind:
    """A list of tables, whose reader checks what is in them."""

    def allows(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)

    def parse(text: str) -> Any:
        raise ValueError(text)

    return Kind("a list of tables, in the file", allows, parse, tuple)
