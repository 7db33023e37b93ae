"""Every setting by its key, and the tree from values by key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from . import kinds, schema
from .kinds import Kind
from .schema import Config

SECTIONS: dict[str, Any] = {
    "models": schema.Models,
    "speculation": schema.Speculation,
    "sampling": schema.Sampling,
    "reply": schema.Reply,
    "history": schema.History,
    "power": schema.Power,
    "app": schema.App,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the user meets it."""

    key: str
    """Section and name with a dot between."""
    kind: Kind
    about: str
    default: Any
    example: Any

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "MACSPEC_" + self.key.upper().replace(".", "_")


def _settings() -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        for place in fields(kind):
            yield _setting(f"{section}.{place.name}", place)
    yield _setting("pairs", next(place for place in fields(Config) if place.name == "pairs"))


def _setting(key: str, place: Any) -> Setting:
    extra = place.metadata
    return Setting(key, extra["kind"], extra["about"], place.default, extra["example"])


SETTINGS: dict[str, Setting] = {each.key: each for each in _settings()}
"""Every setting by its key, in the order of the tree; but for the table ``keys``, which is open."""

ACTION = re.compile(r"keys\.[a-z][a-z0-9_-]*")


def setting_of(key: str) -> Setting | None:
    """The setting with that key, or None."""
    if ACTION.fullmatch(key):
        says = 'a key such as "ctrl+t", or several with commas between'
        return Setting(key, kinds.text(says), "The key of an action of the app.", None, "ctrl+t")
    return SETTINGS.get(key)


def build(values: Mapping[str, Any]) -> Config:
    """The tree from checked values by key; what is missing has its default."""
    whole: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if name:
            whole.setdefault(section, {})[name] = value
        else:
            whole[section] = value
    for section, kind in SECTIONS.items():
        if section in whole:
            whole[section] = kind(**whole[section])
    return Config(**whole)
