"""Every error is one line on standard error with exit status 2."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macspec.assets import pocket
from macspec.errors import MacspecError

WRONG = [
    (["run", "--depth", "-1", "x"], "depth"),
    (["run", "--depth", "33", "x"], "depth"),
    (["run", "--depth", "deep", "x"], "depth"),
    (["run", "--temperature", "-1", "x"], "temperature"),
    (["run", "--temperature", "nan", "x"], "temperature"),
    (["run", "--temperature", "warm", "x"], "temperature"),
    (["run", "--top-p", "0", "x"], "top-p"),
    (["run", "--top-p", "1.01", "x"], "top-p"),
    (["run", "--top-k", "-2", "x"], "top-k"),
    (["run", "--min-p", "2", "x"], "min-p"),
    (["run", "--repetition-penalty", "0", "x"], "repetition-penalty"),
    (["run", "--presence-penalty", "inf", "x"], "presence-penalty"),
    (["run", "--frequency-penalty", "nan", "x"], "frequency-penalty"),
    (["run", "--seed", "-1", "x"], "seed"),
    (["run", "--seed", str(2**64), "x"], "seed"),
    (["run", "--max-tokens", "0", "x"], "max-tokens"),
    (["run", "--max-tokens", "many", "x"], "max-tokens"),
    (["run", "--context", "0", "x"], "context"),
    (["run", "--context", "100000", "x"], "2048"),
    (["run", "--kv-bits", "5", "x"], "kv-bits"),
    (["run", "--method", "medusa", "x"], "medusa"),
    (["run", "--accept", "typical", "x"], "typical"),
    (["run", "--think", "hard", "x"], "hard"),
    (["run", "--stop", "", "x"], "stop"),
    (["run", "--temp", "1", "x"], "--temp"),
    (["run", "--target"], "--target"),
    (["run", "--raw", "--system", "be kind", "x"], "--system"),
    (["run", "--raw", "--think", "on", "x"], "--think"),
    (["run", "--target", "/no/such/folder", "x"], "/no/such/folder"),
    (["run", "--draft", "/no/such/folder", "x"], "/no/such/folder"),
    (["run", "--target", "", "x"], "name is empty"),
    (["run", ""], "prompt is empty"),
    (["run", " \n "], "prompt is empty"),
    (["run"], "prompt is empty"),
    (["run", "caf\udcff"], "UTF-8"),
    (["run", "--stop", "\udcff", "x"], "UTF-8"),
    (["run", "--system", "\udcff", "x"], "UTF-8"),
    (["run", "word " * 3000], "2048"),
    (["check", "--prompts", "0"], "prompts"),
    (["check", "--target", "/no/such/folder"], "/no/such/folder"),
    (["chatter"], "chatter"),
    (["--no-such-option"], "--no-such-option"),
]


@pytest.mark.parametrize(("arguments", "culprit"), WRONG, ids=lambda it: str(it)[:40])
def test_one_line_names_the_culprit(
    macspec: Callable[..., Any], arguments: list[str], culprit: str
) -> None:
    outcome = macspec(*arguments)
    assert outcome.status == 2
    assert outcome.error.startswith("macspec: error: ")
    assert culprit in outcome.error
    assert "Traceback" not in outcome.err
    if arguments[0] == "run":
        assert outcome.out == b""


def test_standard_input_that_is_not_utf8(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9 au lait")))
    outcome = macspec("run")
    assert outcome.status == 2
    assert "byte 0xe9 at position 3" in outcome.error


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


BREAKS: dict[str, Callable[[Path], None]] = {
    "model.safetensors is truncated": cut,
    "safetensors": lambda folder: (folder / "model.safetensors").unlink(),
    "config.json": lambda folder: (folder / "config.json").write_text("{"),
    "tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
}


@pytest.mark.parametrize("culprit", BREAKS)
def test_a_broken_folder_is_an_error_and_not_a_crash(
    macspec: Callable[..., Any], tmp_path: Path, culprit: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(pocket().draft, folder)
    BREAKS[culprit](folder)
    outcome = macspec("run", "Hello", "--target", str(folder))
    assert outcome.status == 2
    assert culprit in outcome.error
    assert "unexpected" not in outcome.error


def test_an_error_cannot_smuggle_control_sequences(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script("a", MacspecError("config says \x1b[2J\nand more"))
    outcome = macspec("run", "Hello")
    assert outcome.error == "macspec: error: config says ␛[2J and more"


def test_a_bug_is_one_line_that_says_where_to_look(
    macspec: Callable[..., Any], script: Callable[..., Any]
) -> None:
    script(ValueError("what now"))
    outcome = macspec("run", "Hello")
    assert outcome.status == 2
    assert "unexpected ValueError: what now" in outcome.error
    assert "MACSPEC_DEBUG=1" in outcome.error


class PanicException(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "error: not enough memory (MemoryError): close other programs"),
        (RuntimeError("[malloc] Unable to allocate"), "error: not enough memory ([malloc]"),
        (RuntimeError("[METAL] Insufficient Memory"), "error: not enough memory ([METAL]"),
        (PanicException("Onig"), "error: a library gave up on this model or text (Onig): choose"),
    ],
)
def test_what_is_no_bug_is_not_called_one(
    macspec: Callable[..., Any], script: Callable[..., Any], error: BaseException, says: str
) -> None:
    script("a", error)
    outcome = macspec("run", "Hello")
    assert (outcome.status, outcome.out) == (2, b"a")
    assert says in outcome.error


def test_debugging_shows_the_traceback(
    macspec: Callable[..., Any], script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACSPEC_DEBUG", "1")
    script(ValueError("what now"))
    with pytest.raises(ValueError, match="what now"):
        macspec("run", "Hello")
