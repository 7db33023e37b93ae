"""How the command line is parsed: one line for a complaint, and what options may hold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..plaintext import one_line


class Parser(argparse.ArgumentParser):
    """A parser whose every complaint is one line with exit status 2."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        complain(f"{message.removeprefix('argument ')} (see {self.prog} --help)")
        self.exit(2)


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, options in a column that fits 80 characters."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{**settings, "max_help_position": 30})


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"macspec {version('macspec')}")
        parser.exit()


def whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """An argument type: a whole number in a range."""

    def parse(text: str) -> int:
        limits = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < lowest or (highest is not None and number > highest):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limits}")
        return number

    return parse


def depth(text: str) -> int | str:
    """An argument type: how many tokens to draft in a round."""
    if text == "auto":
        return text
    try:
        return whole(0, 32)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither auto nor a whole number from 0 to 32"
        ) from None


def some_text(text: str) -> str:
    """An argument type: any text but the empty one."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty")
    return text


def complain(message: str) -> None:
    """One line on standard error."""
    if sys.stderr is not None:
        print(f"macspec: error: {one_line(message)}", file=sys.stderr)
