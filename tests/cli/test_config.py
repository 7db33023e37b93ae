"""macspec config, and that the other commands take their defaults from the settings."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_run import Outcome, Script

from macspec.config.schema import SETTINGS

Macspec = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def file(home: Path) -> Path:
    """The settings file, which does not exist yet."""
    return home / "config" / "config.toml"


def test_show_is_toml_with_origins(macspec: Macspec, monkeypatch: pytest.MonkeyPatch) -> None:
    assert macspec("config", "set", "sampling.seed", "5").status == 0
    assert macspec("config", "set", "keys.tint", "ctrl+t").status == 0
    monkeypatch.setenv("MACSPEC_REPLY_SYSTEM", 'Be "brief".\n')
    shown = macspec("config")
    assert shown.status == 0
    assert shown.out == macspec("config", "show").out
    text = shown.out.decode()
    holds = tomllib.loads(text)
    assert holds["sampling"]["seed"] == 5
    assert holds["sampling"]["temperature"] == 0.7
    assert holds["reply"]["system"] == 'Be "brief".\n'
    assert holds["keys"] == {"tint": "ctrl+t"}
    assert "# MACSPEC_REPLY_SYSTEM" in text
    assert "# line " in text
    assert "# target is not set" in text
    names = [line.lstrip("# ").split(" ")[0] for line in text.splitlines()]
    assert {key.rpartition(".")[2] for key in SETTINGS if "." in key} <= set(names)


def test_show_as_json(macspec: Macspec) -> None:
    macspec("config", "set", "sampling.seed", "5")
    records = [json.loads(line) for line in macspec("config", "show", "--json").out.splitlines()]
    assert [record["key"] for record in records] == list(SETTINGS)
    one = json.loads(macspec("config", "show", "sampling.seed", "--json").out)
    assert one == {"key": "sampling.seed", "value": 5, "origin": "line 6"}


def test_show_explains_one(macspec: Macspec) -> None:
    shown = macspec("config", "show", "speculation.depth").out.decode()
    assert "must be auto or a whole number from 0 to 32." in shown
    assert "MACSPEC_SPECULATION_DEPTH" in shown
    assert tomllib.loads(shown) == {"depth": "auto"}
    assert "such as" in macspec("config", "show", "keys.tint").out.decode()
    assert "did you mean" in macspec("config", "show", "sampling.sed").error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "sampling.sed", "1"], "did you mean sampling.seed?"),
        (["set", "sampling.seed", "x"], "sampling.seed is 'x'; it must be a whole number"),
        (["set", "sampling.top_p", "2"], "sampling.top_p is 2.0; it must be a number above 0"),
        (["set", "pairs", "x"], "it must be a list of tables, in the file"),
        (["unset", "sampling"], "did you mean sampling.temperature?"),
        (["set", "sampling.seed"], "the following arguments are required: VALUE"),
    ],
)
def test_what_cannot_be_set(macspec: Macspec, file: Path, arguments: list[str], says: str) -> None:
    outcome = macspec("config", *arguments)
    assert outcome.status == 2
    assert says in outcome.error
    assert not file.exists()


@pytest.mark.parametrize("key", ["speculation.rule", "speculation.accept"])
def test_set_and_unset(macspec: Macspec, file: Path, key: str) -> None:
    assert macspec("config", "set", key, "keyed").status == 0
    assert tomllib.loads(file.read_text()) == {"speculation": {"rule": "keyed"}}
    shown = macspec("config", "show", key)
    assert tomllib.loads(shown.out.decode()) == {"rule": "keyed"}
    assert macspec("config", "unset", key).status == 0
    assert tomllib.loads(file.read_text()) == {"speculation": {}}


def test_a_folder_is_kept_in_full(
    macspec: Macspec, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    macspec("config", "set", "models.target", "model")
    macspec("config", "set", "models.draft", "org/name")
    models = tomllib.loads(file.read_text())["models"]
    assert models == {"target": str(tmp_path / "model"), "draft": "org/name"}


def test_set_says_when_it_has_no_effect(macspec: Macspec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACSPEC_SAMPLING_SEED", "1")
    outcome = macspec("config", "set", "sampling.seed", "2")
    assert outcome.status == 0
    assert "MACSPEC_SAMPLING_SEED in the environment takes precedence over the file" in outcome.err


def test_the_path(macspec: Macspec, file: Path) -> None:
    assert macspec("config", "path").out.decode() == f"{file}\n"


def editor(folder: Path, text: str) -> str:
    """A program that writes ``text`` into the file it is given."""
    script = folder / "editor.py"
    script.write_text(f"import sys; open(sys.argv[-1], 'w').write({text!r})")
    return f"{sys.executable} {script}"


def test_edit(
    macspec: Macspec, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VISUAL", editor(tmp_path, "[sampling]\nseed = 3\n"))
    assert macspec("config", "edit").status == 0
    assert "seed = 3" in macspec("config").out.decode()
    monkeypatch.setenv("VISUAL", editor(tmp_path, "[sampling]\nseed = -3\n"))
    assert "line 2: sampling.seed is -3" in macspec("config", "edit").error
    assert file.read_text() == "[sampling]\nseed = -3\n"
    monkeypatch.setenv("VISUAL", "/nowhere/ed")
    assert "cannot start the editor '/nowhere/ed'" in macspec("config", "edit").error


def test_edit_begins_with_everything(
    macspec: Macspec, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    assert macspec("config", "edit").status == 0
    assert "# temperature = 0.7" in file.read_text()


@pytest.mark.parametrize("command", [["run", "Hello"], ["check"], ["config"]])
def test_a_broken_file_stops_everything_with_its_line(
    macspec: Macspec, file: Path, command: list[str]
) -> None:
    file.parent.mkdir()
    file.write_text("[sampling]\nseed = \n")
    outcome = macspec(*command)
    assert outcome.status == 2
    assert f"{file}, line 2: " in outcome.error
    assert file.read_text() == "[sampling]\nseed = \n"
    assert macspec("config", "path").status == 0


def test_run_takes_its_defaults_from_the_settings(
    macspec: Macspec, script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {
        "sampling.temperature": "0.25",
        "sampling.seed": "4",
        "reply.system": "Be brief.",
        "reply.max_tokens": "33",
    }.items():
        assert macspec("config", "set", key, value).status == 0
    monkeypatch.setenv("MACSPEC_SAMPLING_SEED", "5")
    session = script("Hi")
    assert macspec("run", "Hello", "--top-k", "6").status == 0
    sampling = session.asked["sampling"]
    assert (sampling.temperature, sampling.seed, sampling.top_k) == (0.25, 5, 6)
    assert session.asked["max_tokens"] == 33
    assert session.asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert macspec("run", "Hello", "--seed", "9", "--temperature", "0").status == 0
    assert session.asked["sampling"].seed == 9
    assert session.asked["sampling"].temperature == 0
    assert macspec("run", "Hello", "--raw").status == 0
    assert session.asked["messages"] == "Hello"


def test_statistics_say_what_the_energy_is_or_why_not(
    macspec: Macspec, script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACSPEC_POWER_SOURCE", "off")
    script("Hi", " there")
    outcome = macspec("run", "Hello", "--stats")
    row = next(line for line in outcome.err.splitlines() if line.startswith("energy"))
    assert row.split(maxsplit=2)[1:] == ["-", "switched off in the settings (power.source)"]
    last = json.loads(macspec("run", "Hello", "--json").out.splitlines()[-1])
    assert last["event"] == "finished"
    assert last["energy"]["decode"]["joules"] is None
    assert "switched off" in last["energy"]["decode"]["reason"]
