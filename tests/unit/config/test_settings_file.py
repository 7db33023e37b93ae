"""The settings file: what is read, what is refused and where, and that changes spoil nothing."""

from __future__ import annotations

import stat
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from macspec.config.file import HEADER, change_file, create_file, read_file, template
from macspec.config.schema import SETTINGS, Setting, setting_of
from macspec.errors import BadOptionError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def named(key: str) -> Setting:
    setting = setting_of(key)
    assert setting is not None
    return setting


def values(path: Path) -> dict[str, Any]:
    return {key: entry.value for key, entry in read_file(path).items()}


def test_no_file_sets_nothing(path: Path) -> None:
    assert read_file(path) == {}


def test_values_and_their_lines(path: Path) -> None:
    path.write_text(
        '# mine\nsampling.seed = 7\n[speculation]\ndepth = 4\n\n"method" = "ngram"\n'
        '[keys]\ntint = "ctrl+t"\n[[pairs]]\ntarget = "a"\n[[pairs]]\ntarget = "b"\n'
    )
    entries = read_file(path)
    assert {key: entry.line for key, entry in entries.items()} == {
        "sampling.seed": 2,
        "speculation.depth": 4,
        "speculation.method": 6,
        "keys.tint": 8,
        "pairs": 9,
    }
    assert entries["pairs"].value == ({"target": "a"}, {"target": "b"})
    assert entries["sampling.seed"].value == 7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[sampling]\n\ntemprature = 1", "line 3: there is no setting sampling.temprature; "
         "did you mean sampling.temperature?"),
        ("temperature = 1", "line 1: there is no setting temperature; "
         "did you mean sampling.temperature?"),
        ("[sampling]\n[sampilng]\nseed = 1", "line 2: there is no setting sampilng; "
         "did you mean sampling?"),
        ("[zzz]", "line 1: there is no setting zzz; macspec config lists them all"),
        ("\nsampling = 3", "line 2: sampling is a section: write [sampling] above its keys"),
        ("keys = 3", "line 1: keys is a section: write [keys] above its keys"),
        ("[sampling]\ntemperature = 'hot'", "line 2: sampling.temperature is 'hot'; it must be 0 "
         "or a number from 0.000001 to 100"),
        ("[sampling]\ntemperature = nan", "line 2: sampling.temperature is nan"),
        ("[sampling]\nseed = true", "line 2: sampling.seed is True"),
        ("[speculation]\ndepth = 33", "line 2: speculation.depth is 33; it must be auto or a "
         "whole number from 0 to 32"),
        ("[speculation]\nmethod = 'magic'", "it must be one of auto, draft, mtp"),
        ("[history]\nsave = 1", "line 2: history.save is 1; it must be true or false"),
        ("[models]\ntarget = ''", "line 2: models.target is ''"),
        ("[models]\nkv_bits = 5", "it must be one of 2, 4, 8"),
        ("pairs = 3", "line 1: pairs is 3; it must be a list of tables"),
        ("[keys]\ntint = 5", "line 2: keys.tint is 5; it must be a key such as"),
        ("[keys]\n'' = 'x'", "there is no setting keys."),
        ("[sampling]\nseed = ", "line 2: "),
        ("[sampling]\nseed = 1\nseed = 2", "line 3: "),
        ("[sampling\n", "line 1: "),
        ("seed = '''", "line 1: "),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(path: Path, text: str, says: str) -> None:
    path.write_text(text)
    with pytest.raises(BadOptionError) as caught:
        read_file(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["[sampling]\ntemperature = 'hot'", "[sampling\n", "a = 1"])
def test_a_broken_file_is_never_written(path: Path, text: str) -> None:
    path.write_text(text)
    for value in (1, None):
        with pytest.raises(BadOptionError, match="line"):
            change_file(path, SETTINGS["sampling.seed"], value)
    create_file(path)
    assert path.read_text() == text
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


def test_what_is_not_utf8_is_told_with_its_line(path: Path) -> None:
    path.write_bytes(b"# fine\n# caf\xe9\n")
    with pytest.raises(BadOptionError, match="line 2: not UTF-8"):
        read_file(path)


def test_what_cannot_be_read_or_written(path: Path) -> None:
    path.mkdir()
    with pytest.raises(BadOptionError, match="cannot be read: Is a directory"):
        read_file(path)
    below = path.parent / "file"
    below.write_text("")
    with pytest.raises(BadOptionError, match="cannot be written"):
        change_file(below / "config.toml", SETTINGS["sampling.seed"], 1)


def test_a_change_keeps_comments_and_layout(path: Path) -> None:
    text = "# mine\n\n[sampling]   # of mine\nseed = 1 # why\n\n# last\n"
    path.write_text(text)
    change_file(path, SETTINGS["sampling.seed"], 2)
    assert path.read_text() == text.replace("1", "2")
    change_file(path, SETTINGS["sampling.temperature"], 0.5)
    assert SETTINGS["sampling.temperature"].about in path.read_text()
    change_file(path, SETTINGS["sampling.temperature"], None)
    change_file(path, SETTINGS["sampling.temperature"], 0.25)
    assert path.read_text().count(SETTINGS["sampling.temperature"].about) == 1
    assert values(path) == {"sampling.seed": 2, "sampling.temperature": 0.25}
    for line in ("# mine", "# of mine", "# why", "# last"):
        assert line in path.read_text()


def test_an_old_name_is_changed_in_its_place_and_taken_out(path: Path) -> None:
    path.write_text("[speculation]\naccept = 'keyed' # why\n")
    change_file(path, SETTINGS["speculation.rule"], "match")
    assert path.read_text() == '[speculation]\naccept = "match" # why\n'
    assert values(path) == {"speculation.rule": "match"}
    change_file(path, SETTINGS["speculation.rule"], None)
    assert values(path) == {}


def test_taking_out_what_is_not_there_changes_nothing(path: Path) -> None:
    change_file(path, SETTINGS["sampling.seed"], None)
    assert not path.exists()


def test_a_new_file_is_for_its_owner_and_says_what_it_is(path: Path) -> None:
    change_file(path, named("keys.tint"), "ctrl+t")
    assert path.read_text().startswith(HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    change_file(path, named("keys.tint"), "ctrl+y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert values(path) == {"keys.tint": "ctrl+y"}


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "macspec.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    path.symlink_to(real)
    change_file(path, SETTINGS["sampling.seed"], 5)
    assert path.is_symlink()
    assert "# mine" in real.read_text()
    assert values(real) == {"sampling.seed": 5}


def test_pairs_are_taken_out_whole(path: Path) -> None:
    path.write_text('[[pairs]]\ntarget = "a"\n[sampling]\nseed = 1\n')
    change_file(path, SETTINGS["pairs"], None)
    assert values(path) == {"sampling.seed": 1}


@pytest.mark.parametrize(
    "text",
    [
        "sampling.seed = 1\n",
        "sampling = {seed = 1}\n",
        "[sampling]\nseed = 1\n[keys]\na = 'b'",
        "[sampling] # x\r\nseed = 1\r\n",
        "reply.system = '''\n[sampling]\nseed = 9\n'''\n",
        "",
    ],
)
@pytest.mark.parametrize("value", [None, 0.5])
def test_whatever_the_layout_only_the_one_value_changes(
    path: Path, text: str, value: float | None
) -> None:
    path.write_bytes(text.encode())
    before = values(path)
    change_file(path, SETTINGS["sampling.top_p"], value)
    assert values(path) == before | ({} if value is None else {"sampling.top_p": value})


CHANGES = {
    "sampling.seed": st.integers(0, 2**64 - 1),
    "sampling.temperature": st.floats(1e-6, 100),
    "reply.system": st.text(max_size=30),
    "models.target": st.text(min_size=1, max_size=30).filter(lambda text: not text.startswith("~")),
    "history.save": st.booleans(),
    "keys.tint": st.text(min_size=1, max_size=9),
    "speculation.depth": st.integers(0, 32) | st.just("auto"),
}


@hypothesis_settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.sampled_from(sorted(CHANGES)).flatmap(
            lambda key: st.tuples(st.just(key), st.none() | CHANGES[key])
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_changes_in_any_order(
    path: Path, changes: list[tuple[str, Any]], from_template: bool
) -> None:
    path.unlink(missing_ok=True)
    if from_template:
        create_file(path)
    expected: dict[str, Any] = {}
    for key, value in changes:
        change_file(path, named(key), value)
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
        assert values(path) == expected


def test_changes_at_the_same_time_are_all_there(path: Path) -> None:
    keys = ["sampling.seed", "sampling.top_k", "models.context", "reply.max_tokens"]
    threads = [threading.Thread(target=change_file, args=[path, SETTINGS[key], 5]) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(path) == dict.fromkeys(keys, 5)


def test_the_template_sets_nothing_and_shows_everything(path: Path) -> None:
    create_file(path)
    assert values(path) == {}
    lines = template().splitlines()
    shown = [
        line[2:] if line.startswith("# ") and " = " in line else line
        for line in lines
        if line.startswith("[") or (line.startswith("# ") and " = " in line)
    ]
    path.write_text("\n".join(shown))
    assert set(values(path)) == {key for key in SETTINGS if "." in key}
    assert max(map(len, lines)) <= 110
    assert tomllib.loads(template()).keys() >= {"models", "keys"}
