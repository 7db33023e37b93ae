"""What the words of /models stand for."""

from __future__ import annotations

import pytest

from macspec.app.chat.picker import named_pair
from macspec.errors import BadOptionError
from macspec.models.catalog import Entry

KNOWN = (Entry("qwen3-4b", "owner/T-4bit", "owner/D-4bit"), Entry("lonely", "owner/Alone"))


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("built-in", (None, None)),
        ("qwen3-4b", ("owner/T-4bit", "owner/D-4bit")),
        ("qwen3-4b none", ("owner/T-4bit", None)),
        ("qwen3-4b other/draft", ("owner/T-4bit", "other/draft")),
        ("lonely", ("owner/Alone", None)),
        ("a/b", ("a/b", None)),
        ("a/b c/d", ("a/b", "c/d")),
        ("'/models/my target' '/models/my draft'", ("/models/my target", "/models/my draft")),
    ],
)
def test_pairs(words, pair):
    assert named_pair(words, KNOWN) == pair


def test_a_folder_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_pair("~/t ~/d", KNOWN) == (f"{tmp_path}/t", f"{tmp_path}/d")


def test_a_folder_in_the_current_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert named_pair("mine", KNOWN) == ("mine", None)


@pytest.mark.parametrize("words", ["", "  ", "a/b c/d e/f", "'open"])
def test_too_few_or_many(words):
    with pytest.raises(BadOptionError, match="name a pair"):
        named_pair(words, KNOWN)


def test_an_unknown_name_has_a_near_one():
    with pytest.raises(BadOptionError, match="did you mean qwen3-4b"):
        named_pair("qwen3-4B", KNOWN)
