"""What is easily misread in the files of a trained block drafter is put right or told, and never
changes a text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from headfiles import TRAINED, written
from replies import finish

from macspec import Notice, Sampling, Session, load_pair
from macspec.assets import pocket as built_in
from macspec.heads import head_in, open_head
from macspec.models import Pair

DSPARK = TRAINED.parent / "dspark"
GREEDY = Sampling(temperature=0)
SAID = (
    "What can you do?",
    "Give me a list of three animals.",
    "Who are you?",
    "I want to book a table for two tomorrow at eight.",
    "What is 12 plus 30?",
)
LAST = "Tell me a short story about a little dog."
LENGTH = 24

OTHERWISE = "the head is read in another way than its files say: "
LEFT_OVER = {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}


def with_settings(folder: Path, settings: dict[str, Any], norms: float = 0.0) -> Path:
    """The trained head with other settings, and something added to the weights of its norms."""
    tensors: Any = mx.load(str(DSPARK / "model.safetensors"))
    changed = {it: array + norms * ("norm" in it) for it, array in tensors.items()}
    config = json.loads((DSPARK / "config.json").read_bytes())
    return written(folder, changed, config | settings)


def replied(pocket: Pair, folder: Path, chat: list[dict[str, str]]) -> tuple[Session, list[str]]:
    """A session with the head of a folder after its reply, and what was said of the head."""
    files = head_in("a head", folder)
    assert files is not None
    pair = replace(pocket, head=open_head(files, pocket.target))
    session = Session(pair, method="dspark", depth=5, rule="keyed")
    events = list(session.reply(chat, GREEDY, max_tokens=LENGTH))
    return session, [it.message for it in events if isinstance(it, Notice) and "head" in it.message]


@pytest.fixture(scope="module")
def chat(pocket: Pair) -> list[dict[str, str]]:
    """Some turns of a user and the target, long enough to judge a head by."""
    session, turns = Session(pocket, method="off"), []
    for said in SAID:
        turns.append({"role": "user", "content": said})
        reply = finish(session, turns, GREEDY, max_tokens=40).text
        turns.append({"role": "assistant", "content": reply})
    return [*turns, {"role": "user", "content": LAST}]


@pytest.fixture(scope="module")
def sound(pocket: Pair, chat: list[dict[str, str]]) -> tuple[tuple[int, ...], int]:
    """The reply of plain decoding, and how many of its tokens the head drafts as it is."""
    plain = finish(Session(pocket, method="off"), chat, GREEDY, max_tokens=LENGTH).token_ids
    session, told = replied(pocket, DSPARK, chat)
    assert session.finished is not None
    assert (session.finished.token_ids, told) == (plain, [])
    assert session.stats.accepted > 0.5 * len(plain)
    return plain, session.stats.accepted


TRAPS: dict[str, tuple[dict[str, Any], float, str]] = {
    "slot": ({"sample_from_anchor": False}, 0, "its first guess stands in another row"),
    "rope": ({"rope_is_neox_style": False}, 0, "positions turn neighbours"),
    "partial rotary left over": ({"rope_parameters": LEFT_OVER}, 0, ""),
    "partial rotary of a native file": (
        {"rope_parameters": LEFT_OVER, "model_type": "qwen3_5"},
        0,
        "another share of each attention head",
    ),
    "norms minus one": ({}, -1, "the weights of its norms"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_put_right(
    pocket: Pair,
    tmp_path: Path,
    chat: list[dict[str, str]],
    sound: tuple[tuple[int, ...], int],
    name: str,
) -> None:
    settings, norms, said = TRAPS[name]
    session, told = replied(pocket, with_settings(tmp_path, settings, norms), chat)
    assert session.finished is not None
    assert session.finished.token_ids == sound[0]
    assert [it.startswith(OTHERWISE + said) for it in told] == [True] * bool(said)
    assert session.stats.accepted >= sound[1] - 2


def test_the_mask_of_another_family_is_reported(tmp_path: Path) -> None:
    folder = with_settings(tmp_path, {"mask_token_id": 300})
    (line,) = (it for it in load_pair(str(built_in().target), str(folder)).notices if "head" in it)
    assert line.startswith("the head marks what it guesses by ")


@pytest.mark.slow
def test_the_mask_of_another_family_changes_no_text(
    pocket: Pair, tmp_path: Path, chat: list[dict[str, str]], sound: tuple[tuple[int, ...], int]
) -> None:
    session, _ = replied(pocket, with_settings(tmp_path, {"mask_token_id": 300}), chat)
    assert session.finished is not None
    assert session.finished.token_ids == sound[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target_layer_ids": [1, 4, 9]}, "reads layers [1, 4, 9] of a target that has 8"),
        ({"mask_token_id": 151669}, "it is for another family"),
    ],
)
def test_what_cannot_be_read_is_off_in_one_line(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    pair = load_pair(str(built_in().target), str(with_settings(tmp_path, settings)))
    assert pair.head is None
    assert said in (pair.draft_off or "")
