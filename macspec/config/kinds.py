"""The kinds of value that a setting can have: what each allows, and how a text is read as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """What values a setting takes."""

    says: str
    """What is allowed, to follow "it must be"."""
    check: Callable[[Any], Any]
    """A TOML value -> the setting's value; ValueError where it is not allowed."""
    parse: Callable[[str], Any] = str
    """A text of the command line or the environment -> a TOML value, or ValueError."""
    metavar: str = ""
    """How the help of an option shows the value."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Where only some words are allowed: each with a short description, which may be empty."""

    def from_text(self, text: str) -> Any:
        """The value of a text, or ValueError."""
        return self.check(self.parse(text))


def text(says: str = "a text", *, empty: bool = False) -> Kind:
    """Any text."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or not (value or empty):
            raise ValueError(value)
        value.encode()  # a surrogate from the environment is not UTF-8: a ValueError
        return value

    return Kind(says, check, metavar="TEXT")


def model() -> Kind:
    """A folder, or a Hugging Face id."""
    plain = text()

    def check(value: Any) -> str:
        return os.path.expanduser(str(plain.check(value)))

    return Kind("a folder or a Hugging Face id", check, metavar="MODEL")


def flag() -> Kind:
    """True or false."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    def parse(text: str) -> bool:
        words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]

    return Kind("true or false", check, parse)


def one_of(*names: str, described: Mapping[str, str] | None = None) -> Kind:
    """One of some words; ``described``: with what each stands for."""
    choices = described or dict.fromkeys(names, "")
    return Kind(
        f"one of {', '.join(choices)}",
        _member(str, choices),
        metavar=f"{{{','.join(choices)}}}",
        choices=choices,
    )


def one_number_of(*numbers: int) -> Kind:
    """One of some whole numbers."""
    names = [str(number) for number in numbers]
    check = _member(int, numbers)
    return Kind(f"one of {', '.join(names)}", check, int, metavar=f"{{{','.join(names)}}}")


def _member(type_: type, choices: Any) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not type_ or value not in choices:
            raise ValueError(value)
        return value

    return check


def whole(lowest: int, highest: int | None = None, *words: str) -> Kind:
    """A whole number in a range, or one of some words."""
    limits = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
    says = " or ".join([*words, f"a whole number {limits}"])

    def check(value: Any) -> int | str:
        if isinstance(value, str) and value in words:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(value)
        if value < lowest or (highest is not None and value > highest):
            raise ValueError(value)
        return value

    return Kind(says, check, lambda text: text if text in words else int(text), metavar="N")


def number(lowest: float, highest: float, *, above: bool = False, zero: bool = False) -> Kind:
    """A number in a range; ``above``: the lowest is left out; ``zero``: 0 is allowed too."""
    low, high = _written(lowest), _written(highest)
    says = f"a number above {low} and at most {high}" if above else f"a number from {low} to {high}"
    if -lowest == highest >= 1e6:
        says = "a number"

    def check(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(value)
        inside = lowest < value <= highest if above else lowest <= value <= highest
        if not inside and not (zero and value == 0):
            raise ValueError(value)
        return float(value)

    return Kind(f"0 or {says}" if zero else says, check, float, metavar="X")


def _written(value: float) -> str:
    """Without an exponent."""
    return f"{value:.12f}".rstrip("0").removesuffix(".")


def tables() -> Kind:
    """A list of tables, whose reader checks what is in them."""

    def check(value: Any) -> tuple[dict[str, Any], ...]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise ValueError(value)
        return tuple(value)

    def parse(text: str) -> Any:
        raise ValueError(text)

    return Kind("a list of tables, in the file", check, parse)
