"""What ``macspec config`` can be asked."""

from __future__ import annotations

from typing import Any

from .parser import Parser

CONFIG_DESCRIPTION = """\
Show the settings that hold and where each is from: the default, the file, or
a MACSPEC_SECTION_NAME variable of the environment. The command line comes
before the environment, and that before the file.
"""

CONFIG_EXAMPLE = """\
example:
  macspec config set sampling.temperature 0.4
"""

CONFIG_EXAMPLES = {
    "show": "show models.target",
    "set": "set speculation.accept keyed",
    "unset": "unset models.draft",
    "edit": "edit",
    "path": "path",
}


def add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config",
        usage="macspec config [ACTION] [options]",
        help="show and change the settings",
        description=CONFIG_DESCRIPTION,
        epilog=CONFIG_EXAMPLE,
    )
    config.set_defaults(command="config", action="show", key=None, json=False)
    actions = config.add_subparsers(title="actions", metavar="ACTION", prog="macspec config")

    def action(name: str, arguments: str, text: str, *places: tuple[str, str]) -> Parser:
        usage = f"macspec config {name}{arguments}"
        example = f"example:\n  macspec config {CONFIG_EXAMPLES[name]}"
        it: Parser = actions.add_parser(
            name, usage=usage, help=text, description=f"{text.capitalize()}.", epilog=example
        )
        for place, meaning in places:
            it.add_argument(place.lower(), metavar=place, help=meaning)
        it.set_defaults(action=name)
        return it

    key = ("KEY", "section and name, as macspec config shows them")
    it = action("show", " [KEY] [options]", "the settings that hold, and where they are from")
    it.add_argument("key", metavar="KEY", nargs="?", help="only this one, with what it does")
    it.add_argument("--json", action="store_true", help="one JSON object a line")
    action("set", " KEY VALUE", "change one in the file", key, ("VALUE", "what it shall be"))
    action("unset", " KEY", "take one out of the file", key)
    action("edit", "", "open the file in $VISUAL or $EDITOR")
    action("path", "", "where the file is")
