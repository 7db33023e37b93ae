"""The settings in effect: defaults, then the file, then the environment, each with its origin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import BadOptionError
from .file import read_file, refusal
from .paths import config_file
from .schema import OLD_KEYS, SECTIONS, SETTINGS, Config, build, variable_of

DEFAULT, FILE, ENVIRONMENT = range(3)

PREFIXES = tuple(f"MACSPEC_{section.upper()}_" for section in SECTIONS)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from."""

    rank: int
    """``DEFAULT``, ``FILE`` or ``ENVIRONMENT``; the higher one takes precedence."""
    name: str
    """In words: default, line 3, MACSPEC_SAMPLING_SEED."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings in effect, and why."""

    config: Config
    origins: Mapping[str, Origin]
    """By key, for every setting and every remapped key."""
    path: Path
    """The settings file, which need not exist."""

    def value(self, key: str) -> Any:
        """The value of a key of ``origins``."""
        section, _, name = key.partition(".")
        if section == "keys":
            return self.config.keys[name]
        return getattr(getattr(self.config, section), name) if name else self.config.pairs


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    without_file: bool = False,
) -> Effective:
    """Read the settings; ``without_file``: as if there were no file.

    A draft model belongs to its target: if the target comes from a place that takes precedence over
    the draft's, the draft is dropped.

    Raises:
        BadOptionError: the file is broken, with its line, or a variable is unknown or has a
            value that is not allowed.
    """
    path = path or config_file()
    values: dict[str, Any] = {}
    origins = {key: Origin(DEFAULT, "default") for key in SETTINGS}
    for key, entry in ({} if without_file else read_file(path)).items():
        values[key] = entry.value
        origins[key] = Origin(FILE, "file" if entry.line is None else f"line {entry.line}")
    variables = _variables(os.environ if environment is None else environment)
    for variable, (key, value) in variables.items():
        values[key] = value
        origins[key] = Origin(ENVIRONMENT, variable)
    target, draft = "models.target", "models.draft"
    if DEFAULT < origins[draft].rank < origins[target].rank:
        del values[draft]
        origins[draft] = Origin(DEFAULT, f"dropped: {origins[target].name} sets only the target")
    return Effective(build(values), origins, path)


def _variables(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Key and value of each variable that is set and not empty; of old names first."""
    names = {variable_of(old): SETTINGS[new] for old, new in OLD_KEYS.items()}
    names |= {setting.variable: setting for setting in SETTINGS.values() if "." in setting.key}
    for variable in environment:
        if variable not in names and variable.startswith(PREFIXES):
            near = [name for name in names if name.startswith(variable)]
            near = near or get_close_matches(variable, names, n=1)
            meant = f"did you mean {near[0]}?" if near else "macspec config lists the settings"
            raise BadOptionError(f"unknown setting {variable} in the environment; {meant}")
    found = {}
    for variable, setting in names.items():
        if text := environment.get(variable):
            try:
                found[variable] = setting.key, setting.kind.from_text(text)
            except ValueError:
                raise refusal(setting, text, f"{variable}: ") from None
    return found
