"""``macspec config``: the settings in effect, where each comes from, and changing them."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from ..config.effective import ENVIRONMENT, Effective, load
from ..config.file import change_file, create_file, refusal, toml, unknown
from ..config.paths import config_file
from ..config.schema import Setting, setting_of
from ..errors import BadOptionError
from ..terminal import Output, say
from .options import Parser, add_actions, add_flag

DESCRIPTION = """\
Show the settings in effect and where each comes from: the default, the file,
or a MACSPEC_SECTION_NAME environment variable. The command line takes
precedence over the environment, and the environment over the file.
"""


def add_options(it: Parser) -> None:
    it.usage = "macspec config [ACTION] [options]"
    it.description = DESCRIPTION
    it.epilog = "example:\n  macspec config set sampling.temperature 0.4\n"
    it.set_defaults(action="show", key=None, json=False)
    action = add_actions(it)
    about = "show the settings in effect and where they come from"
    it = action("show", "[KEY] [options]", about, "models.target")
    it.add_argument("key", metavar="KEY", nargs="?", help="only this one, with an explanation")
    add_flag(it, "--json", "print one JSON object a line")
    key: dict[str, Any] = {
        "metavar": "KEY",
        "help": "section and name, as macspec config shows them",
    }
    it = action("set", "KEY VALUE", "change a setting in the file", "speculation.rule keyed")
    it.add_argument("key", **key)
    it.add_argument("value", metavar="VALUE", help="its new value")
    it = action("unset", "KEY", "remove a setting from the file", "models.draft")
    it.add_argument("key", **key)
    action("edit", "", "open the file in $VISUAL or $EDITOR", "")
    action("path", "", "show where the file is", "")


def config(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    actions = {"show": _show, "set": _set, "unset": _unset, "edit": _edit, "path": _path}
    actions[options.action](options)
    return 0


def _show(options: argparse.Namespace) -> None:
    settings, output = load(), Output()
    wanted = None if options.key is None else _known(options.key)
    if options.json:
        for key, origin in settings.origins.items():
            if wanted is None or wanted.key == key:
                record = {"key": key, "value": settings.value(key), "origin": origin.name}
                output.json(record)
    elif wanted is not None:
        output.text(_explained(settings, wanted))
    else:
        _list(settings, output)


def _list(settings: Effective, output: Output) -> None:
    output.text(f"# {settings.path}{'' if settings.path.exists() else ' (does not exist yet)'}\n")
    section = ""
    for key in sorted(settings.origins, key=lambda key: key == "pairs"):
        head, _, name = key.partition(".")
        if head != section and name:
            section = head
            output.text(f"\n[{head}]\n")
        output.text(_line(settings, key) + "\n")


def _line(settings: Effective, key: str) -> str:
    """A setting as TOML, and where its value comes from."""
    value, name = settings.value(key), key.rpartition(".")[2]
    if key == "pairs":
        return f"\n# pairs: {len(value)} of your own in the catalogue"
    shown = f"# {name} is not set" if value is None else f"{name} = {toml(value)}"
    origin = settings.origins[key].name
    if value is None and origin == "default":
        return shown
    return f"{shown:<40}  # {origin}"


def _explained(settings: Effective, setting: Setting) -> str:
    lines = [f"# {line}" for line in setting.explained()]
    if "." in setting.key and not setting.key.startswith("keys."):
        lines.append(f"# Environment variable: {setting.variable}")
    if setting.key in settings.origins:
        lines.append(_line(settings, setting.key).strip())
    return "\n".join(lines) + "\n"


def _set(options: argparse.Namespace) -> None:
    setting = _known(options.key)
    try:
        value = setting.kind.parse(options.value)
    except ValueError:
        raise refusal(setting, options.value) from None
    if setting.key in ("models.target", "models.draft") and Path(value).is_dir():
        value = str(Path(value).resolve())  # settings apply in every folder
    _change(setting, value)


def _unset(options: argparse.Namespace) -> None:
    _change(_known(options.key), None)


def _change(setting: Setting, value: Any) -> None:
    change_file(config_file(), setting, value)
    origin = load().origins.get(setting.key)
    if origin is not None and origin.rank == ENVIRONMENT:
        say(f"{origin.name} in the environment takes precedence over the file")


def _edit(options: argparse.Namespace) -> None:
    path = config_file()
    create_file(path)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise BadOptionError(
            f"cannot start the editor {editor!r}: {error}; set EDITOR, or open {path} yourself"
        ) from None
    if status:
        say(f"the editor exited with status {status}")
    load()


def _path(options: argparse.Namespace) -> None:
    Output().text(f"{config_file()}\n")


def _known(key: str) -> Setting:
    setting = setting_of(key)
    if setting is None:
        raise unknown(key)
    return setting
