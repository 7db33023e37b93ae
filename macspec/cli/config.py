"""``macspec config``: the settings that hold, where they are from, and changing them."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path

from ..config import Effective, config_file, load
from ..config.edit import change_file, create_file, toml
from ..config.file import refusal, unknown
from ..config.index import Setting, setting_of
from ..errors import BadOptionError
from ..terminal import Output, say

EDITORS = ("VISUAL", "EDITOR")


def config(options: argparse.Namespace) -> int:
    """Do what ``options.action`` says and return the exit status."""
    actions = {"show": _show, "set": _set, "unset": _unset, "edit": _edit, "path": _path}
    actions[options.action](options)
    return 0


def _show(options: argparse.Namespace) -> None:
    settings, output = load(), Output()
    if options.key is not None and options.key not in settings.origins:
        _known(options.key)
    if options.json:
        for key, origin in settings.origins.items():
            if options.key in (None, key):
                record = {"key": key, "value": settings.value(key), "origin": origin.name}
                output.json(record)
        return
    if options.key is not None:
        output.text(_explained(settings, options.key))
        return
    output.text(f"# {settings.path}{'' if settings.path.exists() else ' (not there yet)'}\n")
    section = ""
    for key in sorted(settings.origins, key=lambda key: key == "pairs"):
        head, _, name = key.partition(".")
        if head != section and name:
            section = head
            output.text(f"\n[{head}]\n")
        output.text(_line(settings, key) + "\n")


def _line(settings: Effective, key: str) -> str:
    """A setting as TOML, and where its value is from."""
    value, name = settings.value(key), key.rpartition(".")[2]
    if key == "pairs":
        return f"\n# pairs: {len(value)} in the catalogue of your own"
    shown = f"# {name} is not set" if value is None else f"{name} = {toml(value)}"
    origin = settings.origins[key].name
    if value is None and origin == "default":
        return shown
    return f"{shown:<40}  # {origin}"


def _explained(settings: Effective, key: str) -> str:
    setting = _known(key)
    lines = [f"# {setting.about}", f"# It must be {setting.kind.says}."]
    if "." in key and not key.startswith("keys."):
        lines.append(f"# In the environment: {setting.variable}")
    if key in settings.origins:
        lines.append(_line(settings, key).strip())
    return "\n".join(lines) + "\n"


def _set(options: argparse.Namespace) -> None:
    setting = _known(options.key)
    try:
        value = setting.kind.parse(options.value)
    except ValueError:
        raise refusal(setting, options.value) from None
    if setting.key in ("models.target", "models.draft") and Path(value).is_dir():
        value = str(Path(value).resolve())  # settings hold in every folder
    change_file(config_file(), setting, value)
    _say_what_holds(setting)


def _unset(options: argparse.Namespace) -> None:
    setting = _known(options.key)
    change_file(config_file(), setting, None)
    _say_what_holds(setting)


def _say_what_holds(setting: Setting) -> None:
    """A change that has no effect, since the environment goes before it, is not left unsaid."""
    origin = load().origins.get(setting.key)
    if origin is not None and origin.name == setting.variable:
        say(f"{setting.variable} in the environment goes before the file")


def _edit(options: argparse.Namespace) -> None:
    path = config_file()
    create_file(path)
    editor = next((os.environ[name] for name in EDITORS if os.environ.get(name)), "vi")
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise BadOptionError(
            f"cannot start the editor {editor!r}: {error}; set EDITOR, or open {path} yourself"
        ) from None
    if status:
        say(f"the editor ended with status {status}")
    load()


def _path(options: argparse.Namespace) -> None:
    Output().text(f"{config_file()}\n")


def _known(key: str) -> Setting:
    setting = setting_of(key)
    if setting is None:
        raise unknown(key)
    return setting
