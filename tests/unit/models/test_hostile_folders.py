"""Whatever a model folder holds, it works or is refused in one line, in bounded time and memory."""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from pathlib import Path

import pytest
from hostile import harms
from hostilefolders import FILES, Edit, entry, folders, template
from modelfolders import POCKET

from macspec.errors import MacspecError
from macspec.models import trial
from macspec.models.loading import open_model
from macspec.models.pair import load_pair
from macspec.models.rendering import LimitError, limited
from macspec.session import Session

SECONDS = 10.0
MEMORY = 2 * 10**9


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders are tried as for a user who has none yet."""
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))


def answered(folder: Path) -> str | None:
    """The error of a reply to a prompt; None: there is a reply."""
    try:
        session = Session(load_pair(str(folder)))
        list(session.reply([{"role": "user", "content": "Hello"}], max_tokens=3))
    except MacspecError as error:
        return str(error)
    return None


def made(tmp_path: Path, edit: Edit) -> Path:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(POCKET / "draft", folder)
    edit(folder)
    return folder


def used() -> float:
    """Seconds of processor time, of this process and of those that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


CASES = list(folders())

WRITES_MUCH = {"type": "Replace", "pattern": {"Regex": "^.+"}, "content": "a" * 200_000}


@pytest.mark.long
@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    ("first", "every"),
    [(0, 200), *(pytest.param(first, 4, marks=pytest.mark.slow) for first in range(4))],
)
def test_any_folder_works_or_is_refused_in_one_line(tmp_path: Path, first: int, every: int) -> None:
    cases, refused, slow = CASES[first::every], 0, []
    for what, edit in cases:
        begun = used()
        error = answered(made(tmp_path, edit))
        if used() - begun > SECONDS:
            slow.append(what)
        if error is not None:
            refused += 1
            assert 10 < len(error) <= 1001, what
            assert harms(error) == [], what
            assert not error.startswith("unexpected"), what
            assert "reshape" not in error, what
    assert slow == []
    assert 0 < refused < len(cases)
    trial.TRIAL.close()
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert most * (1 if sys.platform == "darwin" else 1024) < MEMORY


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 300


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (template("{% if true %}"), r"the chat template of .* is damaged \(line 1: "),
        (template(""), "makes an empty prompt of this conversation"),
        (
            template("{{ 'x' * 9000000 }}"),
            "was ended, as it makes 9000000 characters of 18: ",
        ),
        (entry("config.json", "num_hidden_layers", 10**9), "it must be from 0 to 10000"),
        (entry("config.json", "num_labels", 10**9), "it must be from 0 to 100000"),
        (entry("config.json", "model_type", "x" * 10_000_000), "the architecture .x{198}…:"),
        (lambda folder: FILES["too large"](folder / "config.json"), "at most 16.8 MB"),
        (
            entry("tokenizer.json", "decoder", WRITES_MUCH),
            "writes 200000 characters for one token: choose another copy",
        ),
    ],
)
def test_what_is_said(tmp_path: Path, edit: Edit, says: str) -> None:
    error = answered(made(tmp_path, edit))
    assert error is not None
    assert re.search(says, error)


class PanicException(BaseException):
    pass


@pytest.mark.parametrize("error", [PanicException, KeyError])
def test_a_tokenizer_that_gives_up_in_a_reply_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def push(*arguments: object) -> None:
        raise error("Onig: retry-limit-in-match over")

    monkeypatch.setattr("macspec.text.TextStream.push", push)
    said = answered(made(tmp_path, lambda folder: None)) or ""
    assert said.startswith("the tokenizer cannot write this reply (")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("a pipe", "is a device or a pipe"),
        ("endless", "is a link to /dev/zero, outside of the folder"),
        ("a link out", "is a link to /etc/hostname, outside of the folder"),
    ],
)
def test_only_regular_files_of_the_folder_are_opened(
    tmp_path: Path, file: str, how: str, says: str
) -> None:
    folder = made(tmp_path, lambda folder: FILES[how](folder / file))
    assert f"{file} {says}" in (answered(folder) or "")


def test_links_within_the_folder_and_in_the_hubs_cache_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "models--a--b"
    folder = home / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (home / "blobs").mkdir()
    for file in (POCKET / "draft").iterdir():
        shutil.copy(file, home / "blobs" / file.name)
        (folder / file.name).symlink_to(Path("../../blobs") / file.name)
    assert answered(folder) is None
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in folder.iterdir():
        (plain / file.name).symlink_to(file)
    assert "outside of the folder" in (answered(plain) or "")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert answered(plain) is None


@pytest.mark.usefixtures("tried")
def test_a_folder_that_passed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, lambda folder: None)
    asked = []
    monkeypatch.setattr(
        trial.TRIAL, "_ask", lambda it, patience: asked.append(it) or {"passed": True}
    )
    open_model("model", folder)
    open_model("model", folder)
    assert len(asked) == 1
    template("{{ messages[0].content }}")(folder)
    open_model("model", folder)
    assert len(asked) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("tried")
def test_a_tokenizer_as_large_as_any_is_let_through(tmp_path: Path) -> None:
    """262,144 pieces and 514,906 merges, as Gemma's."""
    folder = made(tmp_path, lambda folder: None)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    pieces = tokenizer["model"]["vocab"]
    words = ("".join(it) for size in range(2, 8) for it in product("etaoinsh", repeat=size))
    new = [it for it in islice(words, 262_144) if it not in pieces][: 262_144 - len(pieces)]
    pieces.update({it: number for number, it in enumerate(new, len(pieces))})
    ways = ((it[:at], it[at:]) for at in range(1, 7) for it in new if at < len(it))
    merges = (way for way in ways if way[0] in pieces and way[1] in pieces)
    tokenizer["model"]["merges"] = list(islice(merges, 514_906))
    file.write_text(json.dumps(tokenizer))
    assert len(tokenizer["model"]["merges"]) == 514_906
    trial.TRIAL.check("model", folder)
    known = json.loads((tmp_path / "home" / "cache" / "trials.json").read_text())
    assert len(known) == 1


@pytest.mark.usefixtures("tried")
def test_the_pair_that_ships_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.TRIAL, "_ask", lambda it, patience: pytest.fail("it was"))
    load_pair()


@pytest.mark.parametrize("content", [b"", b"[", b"[1]", b'{"a": "b"}', b"\xff", b"[" * 200_000])
@pytest.mark.usefixtures("tried")
def test_what_is_remembered_may_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(trial.TRIAL, "_ask", lambda it, patience: {"passed": True})
    file = tmp_path / "home" / "cache" / "trials.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    open_model("model", made(tmp_path, lambda folder: None))


@pytest.mark.usefixtures("tried")
def test_where_it_cannot_be_tried_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "PROGRAM", ("false",))
    trial.TRIAL.close()
    assert answered(made(tmp_path, lambda folder: None)) is None


TAKES_MUCH_FIRST = """
import mmap, sys
import mlx.core as mx
from macspec.models import trial

evaluate, taken = mx.eval, []

def take(*arrays):
    evaluate(*arrays)
    taken.append(mmap.mmap(-1, trial.MEMORY, mmap.MAP_PRIVATE))

mx.eval = take
trial.main(int(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system limits it on Linux only")
def test_memory_that_mlx_takes_for_the_machine_is_not_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "PROGRAM", (sys.executable, "-P", "-c", TAKES_MUCH_FIRST))
    trial.TRIAL.close()
    folder = made(tmp_path, lambda folder: None)
    assert trial.TRIAL._ask(["model", str(folder), False], trial.PATIENCE) == {"passed": True}
    trial.TRIAL.close()


def test_a_template_that_shows_itself_only_later_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macspec.models.rendering.SECONDS", 0.5)
    hidden = "{% if messages[0].content == 'Hello' %}{% for i in range(99999) %}"
    hidden += "{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}hi"
    error = answered(made(tmp_path, template(hidden)))
    assert "was ended, as it takes over" in (error or "")


def test_what_never_ends_is_ended_on_another_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macspec.models.rendering.SECONDS", 0.05)
    ended: list[int] = []

    def endless() -> None:
        with limited(10**6):
            ended.append(0)
        with limited(0):
            while True:
                sum(range(9))

    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(LimitError, match="it takes over"):
            thread.submit(endless).result(60)
        assert ended == thread.submit(sorted, ended).result(60) == [0]
