"""Past replies survive on disk as they were, and nothing that happens to the file hurts."""

from __future__ import annotations

import fcntl
import os
import random
import stat
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.drafters import Corpus, corpus
from macspec.drafters import matches as searched
from macspec.drafters.corpus import vocabulary_key
from macspec.drafters.matches import END, MOST, Replies
from macspec.errors import BadOptionError

ONE, TWO, THREE = [1, 2, 3, 4], [5, 6, 2, 3], [9, 2, 3, 7, 8]


def texts(held: Replies) -> list[list[int]]:
    """The replies, oldest first."""
    tokens = np.frombuffer(held.text, ">u4").tolist()
    assert tokens[0] == tokens[-1] == END
    ends = [place for place, token in enumerate(tokens) if token == END]
    return [tokens[end - 1 : begin : -1] for begin, end in pairwise(ends)][::-1]


def saved(folder: Path, *new: Sequence[int], limit: int = 1000) -> Corpus:
    """A corpus that got these replies in one go."""
    held = Corpus.open(folder, "key", limit)
    for reply in new:
        held.add(reply)
    assert held.save()
    return held


def test_replies_come_back_as_they_were(tmp_path: Path) -> None:
    saved(tmp_path / "corpus", ONE, TWO)
    held = saved(tmp_path / "corpus", THREE)
    again = Corpus.open(tmp_path / "corpus", "key")
    assert texts(again.replies) == [ONE, TWO, THREE]
    assert again.replies.text == held.replies.text
    assert again.replies.order.tolist() == held.replies.order.tolist()


def test_a_reply_counts_once_it_is_saved(tmp_path: Path) -> None:
    held = Corpus.open(tmp_path, "key")
    held.add(ONE)
    assert texts(held.replies) == []
    assert list(tmp_path.iterdir()) == []
    held.save()
    assert texts(held.replies) == [ONE]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        held = saved(tmp_path / "corpus", ONE)
        held.add(TWO)
        held.save()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "corpus").stat().st_mode) == 0o700
    for path in (tmp_path / "corpus").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_oldest_replies_go_first(tmp_path: Path) -> None:
    held = saved(tmp_path, ONE, TWO, THREE, limit=12)
    assert texts(held.replies) == [TWO, THREE]
    assert len(held.replies) == 12
    assert texts(saved(tmp_path, ONE, limit=12).replies) == [THREE, ONE]
    assert texts(Corpus.open(tmp_path, "key", 6).replies) == [ONE]


def test_of_a_reply_beyond_the_limit_the_end_is_kept(tmp_path: Path) -> None:
    assert texts(saved(tmp_path, ONE, list(range(50)), limit=10).replies) == [list(range(42, 50))]


def test_what_waits_to_be_saved_is_bounded_too(tmp_path: Path) -> None:
    held = Corpus.open(tmp_path, "key", 100)
    for number in range(1000):
        held.add([number] * 30)
    assert sum(map(len, held._new)) <= 100
    held.save()
    assert texts(held.replies) == [[number] * 30 for number in (997, 998, 999)]


def test_a_reply_said_again_is_kept_once(tmp_path: Path) -> None:
    saved(tmp_path, ONE, TWO, ONE)
    assert texts(saved(tmp_path, TWO, ONE[1:], []).replies) == [ONE, TWO, ONE[1:]]


@pytest.mark.parametrize("token", [-1, END, 2**40])
def test_what_is_no_id_is_refused(tmp_path: Path, token: int) -> None:
    with pytest.raises(ValueError, match="no id"):
        Corpus.open(tmp_path, "key").add([1, token])


def test_a_limit_without_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptionError, match="limited to 2 tokens"):
        Corpus.open(tmp_path, "key", 2)


def test_vocabularies_never_mix(tmp_path: Path) -> None:
    saved(tmp_path, ONE)
    other = Corpus.open(tmp_path, "another key")
    assert texts(other.replies) == []
    (tmp_path / "other").mkdir()
    os.replace(Corpus.open(tmp_path, "key").path, other.path)
    assert texts(Corpus.open(tmp_path, "another key").replies) == []


def test_the_key_tells_vocabularies_apart() -> None:
    table = {0: "a", 1: "b\ud800", 2: "c"}
    keys = [
        vocabulary_key(table, 3),
        vocabulary_key(table, 4),
        vocabulary_key({0: "a", 1: "c", 2: "b\ud800"}, 3),
        vocabulary_key({0: "a", 1: "b\ud800", 3: "c"}, 3),
    ]
    assert len(set(keys)) == 4
    assert vocabulary_key(dict(reversed(table.items())), 3) == keys[0]


def test_clearing_leaves_nothing_anywhere(tmp_path: Path) -> None:
    held = saved(tmp_path, ONE)
    held.add(TWO)
    held.clear()
    assert texts(held.replies) == []
    assert not held.path.exists()
    held.clear()
    assert held.save()
    assert not held.path.exists()


def test_what_was_cleared_elsewhere_stays_cleared(tmp_path: Path) -> None:
    held = saved(tmp_path, ONE)
    Corpus.open(tmp_path, "key").clear()
    held.add(TWO)
    held.save()
    assert texts(held.replies) == [TWO]


def test_damage_is_noticed_and_repaired(tmp_path: Path) -> None:
    rng = random.Random(0)
    held = saved(tmp_path, ONE, TWO)
    sound = held.path.read_bytes()
    lost = 0
    for trial in range(400):
        damaged = bytearray(sound)
        if trial % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            for _ in range(rng.choice([1, 1, 8])):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        held.path.write_bytes(damaged)
        found = texts(Corpus.open(tmp_path, "key").replies)
        assert found in ([ONE, TWO], [])
        lost += not found
    assert lost > 200
    held.path.write_bytes(sound[: len(sound) // 2])
    assert texts(saved(tmp_path, THREE).replies) == [THREE]
    assert texts(Corpus.open(tmp_path, "key").replies) == [THREE]


def foreign(**changes: object) -> dict[str, np.ndarray]:
    held = Replies().with_new([ONE], 100)
    parts: dict[str, object] = {"key": "key", "text": np.frombuffer(held.text, ">u4")}
    return {
        name: np.asarray(part) for name, part in {**parts, "order": held.order, **changes}.items()
    }


@pytest.mark.parametrize(
    "parts",
    [
        {"text": np.array([], ">u4"), "order": np.array([], np.int32)},
        {"text": np.arange(6, dtype=">u4")},
        {"text": np.array([END, 1, 2, 3, 4, END], "<u4")},
        {"order": np.arange(1, 7, dtype=np.int32)},
        {"order": np.arange(-1, 5, dtype=np.int32)},
        {"order": np.arange(5, dtype=np.int32)},
        {"order": np.arange(6, dtype=np.int64)},
        {"order": np.array(3, np.int32), "text": np.array(3, ">u4")},
        {"key": np.array([1, 2])},
        {"key": "another"},
    ],
)
def test_a_file_of_another_kind_counts_as_empty(
    tmp_path: Path, parts: dict[str, np.ndarray]
) -> None:
    path = Corpus.open(tmp_path, "key").path
    np.savez(path, **foreign())
    assert texts(Corpus.open(tmp_path, "key").replies) == [ONE]
    np.savez(path, **foreign(**parts))
    assert len(Corpus.open(tmp_path, "key").replies) == 1


def test_what_is_no_archive_counts_as_empty(tmp_path: Path) -> None:
    path = Corpus.open(tmp_path, "key").path
    for content in (b"", b"PK\x03\x04", b"\x93NUMPY", b"\x80\x04."):
        path.write_bytes(content)
        assert len(Corpus.open(tmp_path, "key").replies) == 1
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    assert len(Corpus.open(tmp_path, "key").replies) == 1


def test_a_folder_that_cannot_be_used_costs_nothing_but_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    held = Corpus.open(tmp_path / "file", "key")
    held.add(ONE)
    assert not held.save()
    held.clear()
    blocked = Corpus.open(tmp_path, "key")
    blocked.path.mkdir()
    blocked.add(ONE)
    assert not blocked.save()
    blocked.path.rmdir()
    assert blocked.save()
    assert texts(Corpus.open(tmp_path, "key").replies) == [ONE]


def test_a_write_that_was_cut_short_changes_nothing(tmp_path: Path) -> None:
    held = saved(tmp_path, ONE)
    held.add(TWO)
    (tmp_path / f".{held.path.name}-killed").touch()  # what a crash leaves
    with patch.object(os, "replace", side_effect=OSError):
        assert not held.save()
    assert texts(Corpus.open(tmp_path, "key").replies) == [ONE]
    assert held.save()
    assert texts(Corpus.open(tmp_path, "key").replies) == [ONE, TWO]
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz", ".lock"}


def test_two_sessions_keep_each_others_replies(tmp_path: Path) -> None:
    first, second = (Corpus.open(tmp_path, "key") for _ in range(2))
    first.add(ONE)
    second.add(TWO)
    assert first.save()
    assert second.save()
    first.add(THREE)
    assert first.save()
    assert texts(first.replies) == [ONE, TWO, THREE]


def test_one_who_holds_the_file_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    held = saved(tmp_path, ONE)
    held.add(TWO)
    with held.path.with_suffix(".lock").open() as lock, patch.object(corpus, "PATIENCE", 0.05):
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not held.save()
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert held.save()
    assert texts(held.replies) == [ONE, TWO]


WRITER = """
import sys
from pathlib import Path
from macspec.drafters import Corpus
held = Corpus.open(Path(sys.argv[1]), "key")
print(flush=True)
for number in range(50):
    held.add([2, number])
    held.save()
while not held.save():
    pass
"""


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    held = Corpus.open(tmp_path, "key")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for number in range(50):
            held.add([1, number])
            held.save()
    assert other.returncode == 0
    assert held.save()
    kept = texts(Corpus.open(tmp_path, "key").replies)
    assert sorted(kept) == [[name, number] for name in (1, 2) for number in range(50)]


def test_of_many_places_a_sample_is_looked_at() -> None:
    held = Replies().with_new([[number, 1, 2, 3] * 9 for number in range(10, 60)], 10**4)
    for tail in ([2], [1, 2], [3, 20, 1, 2]):
        assert len(held.longest(tail)[1]) <= MOST
    node = held.longest([1, 2])[1]
    assert len({held.text[4 * place + 8 : 4 * place + 12] for place in node}) > MOST // 2


rounds = st.lists(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=4), max_size=4
)


@settings(deadline=None, max_examples=100)
@given(rounds, st.integers(3, 40), st.integers(1, 20), st.lists(st.integers(0, 2), min_size=1))
def test_searching_finds_every_place_however_the_replies_came(
    rounds: list[list[list[int]]], limit: int, batch: int, query: list[int]
) -> None:
    held = Replies()
    with patch.object(searched, "BATCH", batch), patch.object(searched, "MOST", 10**6):
        for new in rounds:
            held = held.with_new(new, limit)
        found = held.longest(query)
    text = np.frombuffer(held.text, ">u4").tolist()
    assert len(text) <= limit
    matches = []
    for place in range(len(text)):
        match = 0
        while match < len(query) and [*text[place:], END][match] == query[~match]:
            match += 1
        matches.append(match)
    longest = max(matches)
    assert found == (longest, [p for p, m in enumerate(matches) if longest and m == longest])
    assert held.rows(range(len(text)), 5) == [
        text[max(place - 5, 0) : place][::-1] for place in range(len(text))
    ]
