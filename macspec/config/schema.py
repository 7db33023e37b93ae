"""All settings: for each its kind, default, label and help, from which everything is made that
shows or reads them: the file, the environment, the command line's options, and the app's forms.

Limits that the engine's modules hold too are repeated here, since those import MLX and the app must
not; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ..choices import EFFORTS, MAX_DEPTH, METHODS, OBJECTIVES, RULES
from . import kinds
from .kinds import Kind

BUILT_IN = "built-in"
"""As a target: the pair that comes with macspec."""

NONE = "none"
"""As a draft: no draft model."""

KERNELS = {
    "auto": "if they pass their self-check and are faster",
    "off": "never",
    "strict": "for matrices only those that give several rows the same bits as one row",
}
"""When macspec's own Metal kernels are used."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the user meets it."""

    key: str
    """Section and name with a dot between."""
    kind: Kind
    default: Any
    label: str
    """Two words or so, for forms."""
    help: str
    """What it does, in a clause: lower case, no full stop."""
    unset: str = ""
    """What happens without a value."""
    off: str = ""
    """Help of the option --no-NAME, where that is how the command line sets it."""
    example: Any = None
    """Shown in the file's template where there is no default."""

    @property
    def name(self) -> str:
        """The key without its section."""
        return self.key.rpartition(".")[2]

    @property
    def variable(self) -> str:
        return variable_of(self.key)

    @property
    def about(self) -> str:
        return sentence(self.help)

    def explained(self) -> Iterator[str]:
        """What it does and which values it takes, in lines."""
        yield self.about
        described = [f"  {name}: {about}" for name, about in self.kind.choices.items() if about]
        yield from described
        if not described:
            yield f"It must be {self.kind.says}."
        if self.unset:
            yield f"{'Unset' if self.default is None else 'Empty'}: {self.unset}."


def sentence(clause: str) -> str:
    """A clause with a capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}."


def variable_of(key: str) -> str:
    """The environment variable that sets a key."""
    return "MACSPEC_" + key.upper().replace(".", "_")


def setting(default: Any, kind: Kind, label: str, help: str, **more: Any) -> Any:
    """A field of a section: what ``Setting`` says of it."""
    return field(default=default, metadata={"kind": kind, "label": label, "help": help, **more})


@dataclass(frozen=True, slots=True)
class Models:
    """Which pair to load, and how."""

    target: str | None = setting(
        None,
        kinds.model(),
        "Target",
        "the model whose text you want: a folder, a Hugging Face id (id@revision pins a version), "
        "or built-in",
        unset="the built-in pair",
        example="mlx-community/Qwen3-8B-4bit",
    )
    draft: str | None = setting(
        None,
        kinds.model(),
        "Draft model",
        "a smaller model with the target's vocabulary, or a head: a folder, a Hugging Face id, "
        "built-in or none",
        unset="none, or the built-in pair's head",
        example="mlx-community/Qwen3-0.6B-4bit",
    )
    context: int | None = setting(
        None,
        kinds.whole(1),
        "Context",
        "positions to plan for",
        unset="as many as the target allows and memory holds",
        example=8192,
    )
    kv_bits: int | None = setting(
        None,
        kinds.one_number_of(2, 4, 8),
        "Cache bits",
        "quantize the target's KV cache to this many bits",
        unset="the model's own precision",
        example=8,
    )
    hosts: str | None = setting(
        None,
        kinds.file(),
        "Machines",
        "spread the target over the machines of this file, which mlx.distributed_config writes",
        unset="this machine alone",
        example="~/hosts.json",
    )


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted and accepted."""

    method: str = setting(
        "auto", kinds.one_of(described=METHODS), "Method", "how tokens are drafted"
    )
    depth: int | str = setting(
        "auto",
        kinds.whole(0, MAX_DEPTH, "auto"),
        "Depth",
        f"tokens drafted in a round: 0 (plain) to {MAX_DEPTH}, or auto",
    )
    rule: str = setting(
        "block", kinds.one_of(described=RULES), "Rule", "acceptance rule; all are exact"
    )
    learn: bool = setting(
        True,
        kinds.flag(),
        "Learning",
        "use and save learned costs, acceptance rates and past replies, on this machine only",
        off="do not use or save learned costs, acceptance rates or past replies",
    )
    kernels: str = setting(
        "auto",
        kinds.one_of(described=KERNELS),
        "Kernels",
        "use macspec's own Metal kernels on a Mac",
    )


@dataclass(frozen=True, slots=True)
class Control:
    """What the automatic choice of drafter and depth aims at."""

    objective: str = setting(
        "speed",
        kinds.one_of(described=OBJECTIVES),
        "Objective",
        "what automatic drafting aims at in chats (run and serve: always speed)",
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = setting(
        0.7,
        kinds.number(1e-6, 100, zero=True),
        "Temperature",
        "0 always takes the likeliest token; higher is more varied",
    )
    top_p: float = setting(
        1.0,
        kinds.number(0, 1, above=True),
        "Top-p",
        "keep the likeliest tokens up to this total probability",
    )
    top_k: int = setting(
        0, kinds.whole(0), "Top-k", "keep this many of the likeliest tokens; 0 keeps all"
    )
    min_p: float = setting(
        0.0,
        kinds.number(0, 1),
        "Min-p",
        "drop tokens below this fraction of the likeliest one's probability",
    )
    repetition_penalty: float = setting(
        1.0,
        kinds.number(0.01, 100),
        "Repetition penalty",
        "above 1, recent tokens become less likely",
    )
    presence_penalty: float = setting(
        0.0,
        kinds.number(-1e9, 1e9),
        "Presence penalty",
        "subtracted from the score of every recent token",
    )
    frequency_penalty: float = setting(
        0.0,
        kinds.number(-1e9, 1e9),
        "Frequency penalty",
        "subtracted from a token's score for each recent use",
    )
    seed: int | None = setting(
        None,
        kinds.whole(0, 2**64 - 1),
        "Seed",
        "seed of the random numbers",
        unset="a new one for every reply",
        example=1,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply starts from and where it ends."""

    system: str = setting(
        "",
        kinds.text(empty=True),
        "System prompt",
        "system message before the conversation",
        unset="none",
    )
    think: str | None = setting(
        None,
        kinds.one_of("on", "off", *EFFORTS),
        "Reasoning",
        "whether the model reasons before it answers, and how much, if it has a switch for that",
        unset="the model decides",
        example="off",
    )
    max_tokens: int | None = setting(
        None,
        kinds.whole(1),
        "Longest reply",
        "longest reply in tokens",
        unset="no limit but the context",
        example=1024,
    )


@dataclass(frozen=True, slots=True)
class History:
    """Conversations on disk."""

    save: bool = setting(
        True,
        kinds.flag(),
        "Save history",
        "save conversations on this machine",
        off="save nothing in this machine's history",
    )
    titles: bool = setting(
        True,
        kinds.flag(),
        "Titles by the model",
        "let the model name a new conversation after its first reply, while it is idle",
    )


@dataclass(frozen=True, slots=True)
class Power:
    """Power, energy and sleep."""

    source: str = setting(
        "auto",
        kinds.one_of("auto", "apple", "macmon", "nvml", "rapl", "off"),
        "Power source",
        "where power is measured; auto chooses what measures the chip in use",
    )
    keep_awake: bool = setting(
        True, kinds.flag(), "Keep awake", "prevent idle sleep during a reply or a benchmark"
    )


@dataclass(frozen=True, slots=True)
class App:
    """The terminal app."""

    theme: str = setting("macspec-dark", kinds.text(), "Theme", "colours; the app lists the themes")
    send: str = setting(
        "enter",
        kinds.one_of("enter", "ctrl+j"),
        "Send key",
        "the key that sends the prompt; the other one starts a new line",
    )
    panel: bool = setting(True, kinds.flag(), "Panel", "show the live panel")
    tint: bool = setting(False, kinds.flag(), "Tint", "mark drafted tokens in the text")
    reasoning: bool = setting(
        False, kinds.flag(), "Open reasoning", "leave reasoning unfolded when the answer starts"
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set."""

    models: Models = field(default_factory=Models)
    speculation: Speculation = field(default_factory=Speculation)
    control: Control = field(default_factory=Control)
    sampling: Sampling = field(default_factory=Sampling)
    reply: Reply = field(default_factory=Reply)
    history: History = field(default_factory=History)
    power: Power = field(default_factory=Power)
    app: App = field(default_factory=App)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the app by action, where they are not the defaults."""
    pairs: tuple[Mapping[str, Any], ...] = setting(
        (), kinds.tables(), "Pairs", "pairs to add to the catalogue, each a table [[pairs]]"
    )


SECTIONS: dict[str, Any] = {
    each.name: each.default_factory for each in fields(Config) if is_dataclass(each.default_factory)
}


def _settings() -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        for place in fields(kind):
            yield Setting(f"{section}.{place.name}", default=place.default, **place.metadata)
    pairs = next(place for place in fields(Config) if place.name == "pairs")
    yield Setting("pairs", default=pairs.default, **pairs.metadata)


SETTINGS: dict[str, Setting] = {each.key: each for each in _settings()}
"""Every setting by its key, in the order of the tree; but for the table ``keys``, which is open."""

OLD_KEYS = {"speculation.accept": "speculation.rule"}
"""Earlier names of settings, which files and variables may still use."""

ACTION = re.compile(r"keys\.[a-z][a-z0-9_-]*")


def section(name: str) -> dict[str, Setting]:
    """The settings of a section, by name."""
    return {each.name: each for each in SETTINGS.values() if each.key.startswith(f"{name}.")}


def setting_of(key: str) -> Setting | None:
    """The setting with that key, or an earlier name of it; None: there is none."""
    if ACTION.fullmatch(key):
        says = 'a key such as "ctrl+t", or several with commas between'
        kind = kinds.text(says)
        return Setting(key, kind, None, "Key", "key of an action of the app", example="ctrl+t")
    return SETTINGS.get(OLD_KEYS.get(key, key))


def build(values: Mapping[str, Any]) -> Config:
    """The tree from checked values by key; what is missing has its default."""
    parts: dict[str, dict[str, Any]] = {head: {} for head in ("", "keys", *SECTIONS)}
    for key, value in values.items():
        head, _, name = key.rpartition(".")
        parts[head][name] = value
    sections = {head: kind(**parts[head]) for head, kind in SECTIONS.items()}
    return Config(**sections, keys=parts["keys"], **parts[""])
