"""Command line before environment before file before default."""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec import Sampling
from macspec.cli.options import fill, filled_by
from macspec.config.effective import load
from macspec.config.schema import SECTIONS, SETTINGS, Config
from macspec.errors import BadOptionError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_nothing_set(path: Path) -> None:
    settings = load(path, {})
    assert settings.config == Config()
    assert {origin.name for origin in settings.origins.values()} == {"default"}
    assert list(settings.origins) == list(SETTINGS)


def test_who_goes_before_whom(path: Path) -> None:
    path.write_text("[sampling]\nseed = 1\ntop_k = 2\n[keys]\ntint = 'f2'\n")
    settings = load(path, {"MACSPEC_SAMPLING_SEED": "3", "MACSPEC_SAMPLING_MIN_P": ""})
    sampling = settings.config.sampling
    assert (sampling.seed, sampling.top_k, sampling.min_p) == (3, 2, 0.0)
    origins = {key: settings.origins[key].name for key in ("sampling.seed", "sampling.top_k")}
    assert origins == {"sampling.seed": "MACSPEC_SAMPLING_SEED", "sampling.top_k": "line 3"}
    assert settings.config.keys == {"tint": "f2"}
    assert settings.origins["keys.tint"].name == "line 5"


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("MACSPEC_MODELS_TARGET", "a/b", "models.target", "a/b"),
        ("MACSPEC_MODELS_KV_BITS", "8", "models.kv_bits", 8),
        ("MACSPEC_SPECULATION_DEPTH", "auto", "speculation.depth", "auto"),
        ("MACSPEC_SPECULATION_DEPTH", "7", "speculation.depth", 7),
        ("MACSPEC_SPECULATION_LEARN", "off", "speculation.learn", False),
        ("MACSPEC_HISTORY_SAVE", "TRUE", "history.save", True),
        ("MACSPEC_REPLY_SYSTEM", "Be brief.", "reply.system", "Be brief."),
        ("MACSPEC_SAMPLING_TOP_P", "0.5", "sampling.top_p", 0.5),
    ],
)
def test_the_environment(path: Path, variable: str, text: str, key: str, value: Any) -> None:
    settings = load(path, {variable: text})
    assert settings.value(key) == value
    assert settings.origins[key].name == variable


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("MACSPEC_SAMPLING_TEMP", "1", "did you mean MACSPEC_SAMPLING_TEMPERATURE?"),
        ("MACSPEC_SAMPLING_TEMPERATURE", "hot", "MACSPEC_SAMPLING_TEMPERATURE: sampling.temp"),
        ("MACSPEC_SAMPLING_TEMPERATURE", "inf", "it must be 0 or"),
        ("MACSPEC_SPECULATION_DEPTH", "-1", "from 0 to 32"),
        ("MACSPEC_HISTORY_SAVE", "yes", "true or false"),
        ("MACSPEC_REPLY_SYSTEM", "\udce9", "it must be a text"),
    ],
)
def test_a_variable_that_cannot_be_used(path: Path, variable: str, text: str, says: str) -> None:
    with pytest.raises(BadOptionError) as caught:
        load(path, {variable: text})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "environment", "rule"),
    [
        ("accept = 'keyed'", {}, "keyed"),
        ("accept = 'keyed'\nrule = 'match'", {}, "match"),
        ("rule = 'match'\naccept = 'keyed'", {}, "match"),
        ("rule = 'block'", {"MACSPEC_SPECULATION_ACCEPT": "keyed"}, "keyed"),
        (
            "",
            {"MACSPEC_SPECULATION_RULE": "match", "MACSPEC_SPECULATION_ACCEPT": "keyed"},
            "match",
        ),
    ],
)
def test_old_names_are_read_where_the_new_one_is_not_used(
    path: Path, text: str, environment: dict[str, str], rule: str
) -> None:
    path.write_text(f"[speculation]\n{text}\n")
    settings = load(path, environment)
    assert settings.value("speculation.rule") == rule
    assert "speculation.accept" not in settings.origins


def test_variables_of_other_purposes_are_left_alone(path: Path) -> None:
    others = {"MACSPEC_HOME": "x", "MACSPEC_DEBUG": "1", "MACSPEC_PAIRS": "2", "SAMPLING_SEED": "3"}
    assert load(path, others).config == Config()


def test_a_target_of_the_environment_does_not_get_the_files_draft(path: Path) -> None:
    path.write_text("[models]\ntarget = 'big'\ndraft = 'small'\n")
    assert load(path, {}).config.models.draft == "small"
    settings = load(path, {"MACSPEC_MODELS_TARGET": "other"})
    assert (settings.config.models.target, settings.config.models.draft) == ("other", None)
    assert "MACSPEC_MODELS_TARGET" in settings.origins["models.draft"].name
    both = load(path, {"MACSPEC_MODELS_TARGET": "other", "MACSPEC_MODELS_DRAFT": "own"})
    assert both.config.models.draft == "own"
    assert load(path, {"MACSPEC_MODELS_DRAFT": "own"}).config.models.target == "big"


def test_a_folder_of_the_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path.write_text("[models]\ntarget = '~/models/big'\n")
    assert load(path, {}).config.models.target == "/home/me/models/big"


def options(**given: Any) -> argparse.Namespace:
    names = dict.fromkeys(filled_by())
    return argparse.Namespace(**{**names, "raw": False, **given})


def test_the_command_line_goes_before_all(path: Path) -> None:
    path.write_text("[sampling]\nseed = 1\ntop_k = 2\n[reply]\nsystem = 'S'\nthink = 'off'\n")
    filled = options(seed=9, temperature=0.0)
    fill(filled, load(path, {"MACSPEC_SAMPLING_TEMPERATURE": "3"}))
    assert (filled.seed, filled.top_k, filled.temperature, filled.top_p) == (9, 2, 0.0, 1.0)
    assert (filled.system, filled.think, filled.learn) == ("S", "off", True)


def test_what_a_command_has_not_is_not_given_to_it(path: Path) -> None:
    few = argparse.Namespace(target=None, draft=None, context=None, max_tokens=48)
    fill(few, load(path, {"MACSPEC_REPLY_MAX_TOKENS": "5", "MACSPEC_MODELS_CONTEXT": "512"}))
    assert vars(few) == {"target": None, "draft": None, "context": 512, "max_tokens": 48}


def test_a_raw_prompt_has_no_system_turn(path: Path) -> None:
    path.write_text("[reply]\nsystem = 'S'\nthink = 'on'\n")
    raw = options(raw=True)
    fill(raw, load(path, {}))
    assert (raw.system, raw.think) == (None, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("big", "small")),
        ({"target": "other"}, ("other", None)),
        ({"target": "other", "draft": "own"}, ("other", "own")),
        ({"draft": "own"}, ("big", "own")),
        ({"draft": "none"}, ("big", None)),
        ({"target": "built-in"}, (None, None)),
    ],
)
def test_a_draft_goes_with_its_target(
    path: Path, given: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    path.write_text("[models]\ntarget = 'big'\ndraft = 'small'\n")
    filled = options(**given)
    fill(filled, load(path, {}))
    assert (filled.target, filled.draft) == expected


def test_every_field_has_a_sentence_and_a_name_of_its_own() -> None:
    for setting in SETTINGS.values():
        assert (
            setting.about[0].isupper() or setting.about[0].isdigit() or "macspec" in setting.about
        )
        assert setting.about.endswith(".")
        if setting.default is not None and "." in setting.key:
            assert setting.kind.check(setting.default) == setting.default
        elif setting.example is not None:
            setting.kind.check(setting.example)
    assert {each.name for each in fields(Config)} == {*SECTIONS, "keys", "pairs"}
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(set(variables)) == len(variables)


SAMPLED = [each.name for each in fields(SECTIONS["sampling"])]


@given(st.sampled_from(SAMPLED), st.floats(-2, 2) | st.floats() | st.integers(-3, 2**65))
def test_the_settings_allow_what_sampling_allows(name: str, value: float) -> None:
    if name in ("top_k", "seed") and isinstance(value, float):
        value = int(value) if math.isfinite(value) else 0
    try:
        Sampling(**{name: value})
        allowed = True
    except BadOptionError:
        allowed = False
    try:
        SETTINGS[f"sampling.{name}"].kind.check(value)
    except ValueError:
        assert not allowed
    else:
        assert allowed


def test_the_defaults_are_the_engines() -> None:
    ours, engines = Config().sampling, Sampling()
    assert {name: getattr(ours, name) for name in SAMPLED} == {
        name: getattr(engines, name) for name in SAMPLED
    }


def test_the_names_of_rules_and_methods_are_the_engines() -> None:
    from macspec.choices import METHODS, RULES

    speculation = {"method": METHODS, "rule": RULES}
    for (name, words), word in itertools.product(speculation.items(), ("auto", "block", "x")):
        check = SETTINGS[f"speculation.{name}"].kind.check
        if word in words:
            assert check(word) == word
        else:
            with pytest.raises(ValueError, match=word):
                check(word)
