"""What holds: the defaults, then the file, then the environment, and where each value is from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from .file import read_file, refusal
from .index import SECTIONS, SETTINGS, build
from .paths import config_file
from .schema import Config

DEFAULT, FILE, ENVIRONMENT = range(3)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value is from."""

    rank: int
    """The higher comes first: ``DEFAULT``, ``FILE`` or ``ENVIRONMENT``."""
    name: str
    """In words: default, line 3, MACSPEC_SAMPLING_SEED."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings that hold, and why."""

    config: Config
    origins: Mapping[str, Origin]
    """By key, for every setting and every remapped key."""
    path: Path
    """The file they are from, which need not exist."""

    def value(self, key: str) -> Any:
        """The value of a key of ``origins``."""
        section, _, name = key.partition(".")
        if section == "keys":
            return self.config.keys[name]
        return getattr(getattr(self.config, section), name) if name else self.config.pairs


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Effective:
    """Read the settings.

    A draft model belongs to its target: where a target comes from a place that goes before the
    draft's, the draft is left out.

    Args:
        path: the file; None: the user's own.
        environment: None: this process's.

    Raises:
        BadOptionError: the file is broken, with its line, or a variable is unknown or has a
            value that is not allowed.
    """
    path = path or config_file()
    values: dict[str, Any] = {}
    origins = {key: Origin(DEFAULT, "default") for key in SETTINGS}
    for key, entry in read_file(path).items():
        values[key] = entry.value
        origins[key] = Origin(FILE, "file" if entry.line is None else f"line {entry.line}")
    variables = _variables(os.environ if environment is None else environment)
    for variable, (key, value) in variables.items():
        values[key] = value
        origins[key] = Origin(ENVIRONMENT, variable)
    target, draft = "models.target", "models.draft"
    if DEFAULT < origins[draft].rank < origins[target].rank:
        del values[draft]
        origins[draft] = Origin(DEFAULT, f"left out: {origins[target].name} sets the target alone")
    return Effective(build(values), origins, path)


def _variables(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Key and value of each variable that is set and not empty."""
    names = {setting.variable: setting for setting in SETTINGS.values() if "." in setting.key}
    found = {}
    for variable, text in environment.items():
        if variable in names and text:
            setting = names[variable]
            try:
                found[variable] = setting.key, setting.kind.from_text(text)
            except ValueError:
                raise refusal(setting, text, f"{variable}: ") from None
        elif variable not in names and _like_a_setting(variable):
            begun = [name for name in names if name.startswith(variable)]
            near = begun or get_close_matches(variable, names, n=1)
            meant = f"did you mean {near[0]}?" if near else "macspec config shows the settings"
            raise BadOptionError(f"the environment's {variable} is no setting; {meant}")
    return found


def _like_a_setting(variable: str) -> bool:
    return variable.startswith(tuple(f"MACSPEC_{section.upper()}_" for section in SECTIONS))
