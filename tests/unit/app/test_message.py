"""The text of a message: files, pastes, and prompts that were sent before."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.app import message as files
from macspec.app.message import (
    UNWIELDY,
    FileError,
    Pastes,
    Recall,
    block,
    is_long,
    with_files,
    write,
)
from macspec.app.paths import argument, mentioned


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return work


def texts(typed: str) -> list[str]:
    return [typed[: each.start] + each.text for each in mentioned(typed)]


def test_a_file_stands_below_with_its_name(folder: Path) -> None:
    (folder / "main.py").write_text("print(1)\n")
    text, notices = with_files("explain @main.py, please")
    assert text == "explain `main.py`, please\n\n`main.py`:\n```py\nprint(1)\n```"
    assert notices == []


def test_two_names_and_one_file_twice(folder: Path) -> None:
    (folder / "a").write_text("one")
    (folder / "b c").write_text("")
    text, _ = with_files("@a and @\"b c\" and '@a' and @a")
    assert text == ("`a` and `b c` and '@a' and `a`\n\n`a`:\n```\none\n```\n\n`b c`:\n```\n```")


def test_a_fence_holds_whatever_is_in_it(folder: Path) -> None:
    (folder / "x.md").write_text("````\n```\ntext")
    assert with_files("@x.md")[0] == "`x.md`\n\n`x.md`:\n`````md\n````\n```\ntext\n`````"
    assert files.BLOCK.search(with_files("@x.md")[0]) is not None


@pytest.mark.parametrize("text", ["me@host.org", "@dataclass", "a @ b", "@", "@@", "no @, no"])
def test_what_names_no_file_is_text(text: str) -> None:
    assert with_files(text) == (text, [])


def test_what_looks_like_a_name_is_not_passed_over_in_silence(folder: Path) -> None:
    (folder / "src").mkdir()
    text, notices = with_files("@src/none.py and @src and @'no such'")
    assert text == "@src/none.py and @src and @'no such'"
    assert notices == [
        "there is no file src/none.py; sent as text",
        "src is a folder; sent as text",
        "there is no file no such; sent as text",
    ]


def test_home_is_spelt_out(tmp_path: Path) -> None:
    (tmp_path / "home" / "notes").write_text("here\n")
    assert with_files("@~/notes")[0] == "`~/notes`\n\n`~/notes`:\n```\nhere\n```"


def test_what_was_pasted_names_no_files(folder: Path) -> None:
    (folder / "a").write_text("one")
    text, _ = with_files("[pasted] @a", lambda it: it.replace("[pasted]", "@a"))
    assert text == "@a `a`\n\n`a`:\n```\none\n```"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"\0text", "contains null bytes"),
        (b"x" * (files.LARGEST + 1), "262,145 bytes"),
    ],
)
def test_no_text_no_message(folder: Path, data: bytes, says: str) -> None:
    (folder / "it").write_bytes(data)
    with pytest.raises(FileError, match=says):
        with_files("what is @it?")


def test_a_pipe_and_a_closed_file_do_not_hold_anybody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(FileError, match="is not a regular file"):
        with_files("@pipe")
    if os.geteuid():
        (folder / "shut").touch(mode=0)
        with pytest.raises(FileError, match="cannot be read: Permission denied"):
            with_files("@shut")


def test_line_ends_and_marks_of_other_systems(folder: Path) -> None:
    (folder / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert files.read(folder / "dos.txt") == "one\ntwo\n"


def test_a_name_with_control_characters_is_shown_without(folder: Path) -> None:
    (folder / "a\x1b[31m`b").write_text("x")
    assert "`a␛[31m'b`:" in with_files("@a\x1b[31m`b")[0]


def test_names_are_completed(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "my file.py").touch()
    (folder / "Setup.cfg").touch()
    (folder / ".hidden").touch()
    (folder / "it's").touch()
    assert texts("see @") == ['see @"it\'s" ', "see @Setup.cfg ", "see @src/"]
    assert texts("see @s") == ["see @Setup.cfg ", "see @src/", 'see @"it\'s" ']
    assert texts("@src/") == ['@"src/my file.py" ']
    assert texts('@"src/my f') == ['@"src/my file.py" ']
    assert texts("@'src/") == ["@'src/my file.py' "]
    assert texts("@.h") == ["@.hidden "]
    assert texts("@none/") == texts("no") == texts("a@s") == texts("@src/x y") == []
    (folder / "src" / "in here").mkdir()
    assert texts("@src/in") == ['@"src/in here/']
    assert texts('@"src/in here/') == []


def test_every_completion_is_a_file_that_goes_in(folder: Path) -> None:
    for name in ("plain", "two words", "it's", 'a "b"', "comma,", "é", "x.tar.gz"):
        (folder / name).write_text(name)
    for text in texts("@"):
        assert re.search(r"`:\n```\w*\n.*\n```$", with_files(text)[0]), text
    assert len(texts("@")) == 7


def test_writing_never_writes_over(folder: Path) -> None:
    path = folder / "out.md"
    assert write(Path("out.md"), "one\ud800") == Path("out.md")
    assert path.read_bytes() == "one\N{REPLACEMENT CHARACTER}".encode()
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(FileError, match="already exists"):
        write(path, "two")
    (folder / "link").symlink_to(folder / "nowhere")
    with pytest.raises(FileError, match="already exists"):
        write(folder / "link", "two")
    assert sorted(each.name for each in folder.iterdir()) == ["link", "out.md"]


def test_writing_says_why_it_cannot(folder: Path) -> None:
    for path, says in (
        (folder, "is a folder"),
        (folder / "no" / "such", "No such file"),
        (Path("a\0b"), "null byte"),
    ):
        with pytest.raises(FileError, match=says):
            write(path, "x")


def test_the_home_folder_is_written_to(tmp_path: Path) -> None:
    assert write(Path("~/x"), "x") == tmp_path / "home" / "x"


@given(st.text())
def test_text_without_files_is_never_changed(text: str) -> None:
    assert with_files(text)[0] == text


LONG = "\n".join(f"line {number}" for number in range(42))


def test_only_long_pastes_fold() -> None:
    assert not is_long("x" * 1000)
    assert is_long("x" * 1001)
    assert not is_long("\n".join("x" * 8))
    assert not is_long("\n".join("x" * 8) + "\n")
    assert is_long("\n".join("x" * 9))


def test_a_name_says_what_it_stands_for() -> None:
    pastes = Pastes()
    assert pastes.fold(LONG) == "[pasted 42 lines #1]"
    assert pastes.fold("x" * 12_345) == "[pasted 12,345 characters #2]"
    assert pastes.fold(LONG) == "[pasted 42 lines #1]"
    assert pastes.fold(f"{LONG}\n") == "[pasted 42 lines #3]"


def test_it_is_whole_again_and_can_be_folded_again() -> None:
    pastes = Pastes()
    shown = f"before {pastes.fold(LONG)} after {pastes.fold(LONG)}"
    whole = pastes.expand(shown)
    assert whole == f"before {LONG} after {LONG}"
    assert pastes.folded(whole) == shown
    assert pastes.folded(whole.replace("line 3\n", "")) == whole.replace("line 3\n", "")


def test_places_are_those_of_known_names() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    line = f"ab {name}{name} [pasted 42 lines #9]"
    assert [line[start:end] for start, end in pastes.places(line)] == [name, name]


def test_a_text_with_a_name_in_it_stays_what_it_is() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    text = f"it showed {name} there, and this: {LONG}"
    shown = pastes.folded(text)
    assert shown == f"it showed {name} there, and this: [pasted 42 lines #2]"
    assert pastes.expand(shown) == text


def test_a_paste_within_a_paste_is_not_unfolded() -> None:
    pastes = Pastes()
    name = pastes.fold(LONG)
    outer = pastes.fold(f"{LONG}\n{name}")
    assert pastes.expand(outer) == f"{LONG}\n{name}"


def test_files_of_an_earlier_message_fold(tmp_path: Path) -> None:
    path = tmp_path / "notes [1].md"
    path.write_text(LONG + "\n```\nin a fence\n```\n")
    text = f"what is this?\n\n{block(path, 'notes [1].md')}"
    pastes = Pastes()
    shown = pastes.folded(text)
    assert shown == "what is this?\n\n[notes 1.md 48 lines #1]"
    assert pastes.expand(shown) == text


def test_what_is_too_long_for_a_few_lines_folds_as_a_whole() -> None:
    pastes = Pastes()
    text = "a b " * UNWIELDY
    assert pastes.folded(text) == "[pasted 80,000 characters #1]"
    assert pastes.expand(pastes.folded(text)) == text


PIECES = st.sampled_from(
    [LONG, "x" * 1500, "[pasted 42 lines #1]", "[pasted 42 lines #2]", "#1]", "[", " ", "a\n", "x"]
)


@given(
    st.lists(st.lists(PIECES, min_size=1).map("".join), max_size=4),
    st.lists(PIECES).map("".join),
)
def test_folding_never_changes_a_text(pasted: list[str], text: str) -> None:
    pastes = Pastes()
    for each in pasted:
        pastes.fold(each)
    assert pastes.expand(pastes.folded(text)) == text


def test_there_and_back() -> None:
    recall = Recall(["first", "second", "second", " "])
    assert recall.step("unsent", 1) is None
    assert recall.step("unsent", -1) == "second"
    assert recall.step("second", -1) == "first"
    assert recall.step("first", -1) is None
    assert recall.step("first", 1) == "second"
    assert recall.step("second", 1) == "unsent"


def test_changes_stay_until_something_is_sent() -> None:
    recall = Recall(["first", "second"])
    recall.step("unsent", -1)
    assert recall.step("second, changed", -1) == "first"
    assert recall.unsent("first!") == ["unsent", "first!", "second, changed"]
    assert recall.step("first!", 1) == "second, changed"
    recall.add("second, changed")
    assert recall.step("", -1) == "second, changed"
    assert recall.step("second, changed", -1) == "second"
    assert recall.unsent("second") == []


def test_the_same_twice_is_one() -> None:
    recall = Recall()
    recall.add("again")
    recall.add("again")
    assert recall.step("", -1) == "again"
    assert recall.step("again", -1) is None


@given(st.lists(st.sampled_from("abc"), max_size=4), st.lists(st.sampled_from([-1, 1, "x"])))
def test_what_is_being_written_is_never_lost(sent: list[str], steps: list[int | str]) -> None:
    recall, text = Recall(sent), "unsent"
    for step in steps:
        if isinstance(step, str):
            text += step
        else:
            text = recall.step(text, step) or text
        assert any(each.startswith("unsent") for each in recall.unsent(text))


def test_paths_of_commands(folder: Path) -> None:
    for name in ("notes", "models/qwen 1", "models/qwen2", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "novel.md").touch()
    found = {
        typed: argument(typed) for typed in ("/export no", "/models ./mo", "/models a ./models/")
    }
    lines = {typed: [it.text for it in each] for typed, each in found.items()}
    assert lines == {
        "/export no": ["/export notes/"],
        "/models ./mo": ["/models ./models/"],
        "/models a ./models/": ["/models a ./models/qwen2/"],
    }
    # Enter takes the folder of a model; it writes a new file under the name that is typed.
    assert [each[0].by_enter for each in found.values()] == [False, True, False]
    assert not any(
        map(argument, ("/models mo", "/depth no", "notes", "/copy x/y", "/models ./models"))
    )
