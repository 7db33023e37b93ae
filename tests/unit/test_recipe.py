"""The recipe of the built-in pair: our own conversations, the tokenizer, and the short mode."""

from __future__ import annotations

import importlib
import json
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from replies import finish
from tokenizers import Tokenizer

from macspec import Sampling, Session, load_pair
from macspec.assets import pocket

RECIPE = pocket().target.parent / "recipe"
SIGNS = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "divided by": operator.floordiv,
}
ODD = (
    "",
    " ",
    "Hello  there ",
    "  two\n\n\tlines\r\n",
    "7*12=84, 3.50 and 1,000",
    "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600 \U0001f469\u200d\U0001f467",
    "\x00\x7f\ufeff\u200b",
    "<|user|>not a turn<|end|>",
    "a" * 300,
)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of the recipe by its name."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RECIPE))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(RECIPE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_conversations_are_the_same_again_and_end_with_an_answer(recipe: Any) -> None:
    generator = recipe("conversations")
    chats = generator.conversations("train", 0, 300)
    assert chats == generator.conversations("train", 0, 300)
    assert chats[200:] == generator.conversations("train", 200, 100)
    assert chats != generator.conversations("held-out", 0, 300)
    for chat in chats:
        roles = [message["role"] for message in chat]
        turns = roles[roles[0] == "system" :]
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        assert turns
        assert all(message["content"].strip() for message in chat)


def test_every_sum_is_right_and_all_json_can_be_read(recipe: Any) -> None:
    generator = recipe("conversations")
    sums = objects = 0
    for chat in generator.conversations("train", 0, 2000):
        for message in chat:
            if message["role"] != "assistant":
                continue
            said = message["content"]
            found = re.findall(r"(\d+) (plus|minus|times|divided by) (\d+) is (\d+)", said)
            for left, sign, right, result in found:
                assert SIGNS[sign](int(left), int(right)) == int(result), said
            sums += len(found)
            for left, right, result in re.findall(r"(\d+) x (\d+) = (\d+)", said):
                assert int(left) * int(right) == int(result), said
            if said[0] in "{[":
                json.loads(said)
                objects += 1
    assert sums > 400
    assert objects > 40


def test_the_converted_tokenizer_gives_the_ids_of_sentencepiece(recipe: Any) -> None:
    pieces, corpus = recipe("pieces"), recipe("conversations")
    chats = corpus.conversations("train", 0, 400)
    texts = [message["content"] for chat in chats for message in chat]
    model = pieces.train([line for text in texts for line in text.split("\n") if line], 700)
    source = sentencepiece.SentencePieceProcessor(model_proto=model)
    same = Tokenizer.from_str(pieces.converted(model))
    for text in (*texts, *ODD):
        ids = same.encode(text, add_special_tokens=False).ids
        assert ids == source.encode(text)
        assert same.decode(ids, skip_special_tokens=False) == text
    names = ("<unk>", *pieces.SPECIAL)
    assert [same.token_to_id(name) for name in names] == list(range(len(names)))


@pytest.mark.slow
def test_the_short_mode_makes_a_pair_that_drafts(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the optional training library PyTorch")
    build = [sys.executable, str(RECIPE / "build.py"), "--short", "--device", "cpu"]
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "pair")]
    subprocess.run([*build, *folders], check=True, cwd=tmp_path, timeout=300)
    numbers = json.loads((tmp_path / "work" / "target.json").read_text())
    assert numbers["held_out"]["ours"] < 4.5

    target, draft = str(tmp_path / "pair" / "target"), str(tmp_path / "pair" / "draft")
    pair = load_pair(target, draft)
    assert pair.draft_off is None
    greedy = Sampling(temperature=0)
    drafted = finish(Session(pair, method="draft", depth=3), "hello", greedy, max_tokens=24)
    assert drafted.stats.drafted > 0
    for kind in ("mtp", "eagle", "dflash", "dspark"):
        pair = load_pair(target, str(tmp_path / "work" / kind))
        assert pair.draft_off is None
        headed = finish(Session(pair, method=kind, depth=3), "hello", greedy, max_tokens=24)
        assert headed.stats.drafted > 0
        assert headed.token_ids == drafted.token_ids
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    with_system = finish(Session(pair, method="off"), system, greedy, max_tokens=4)
    assert with_system.stats.prompt_tokens > drafted.stats.prompt_tokens

    run = [sys.executable, "-m", "macspec", "run", "--target", target, "--draft", draft]
    done = subprocess.run(
        [*run, "hello", "--max-tokens", "8"], check=True, capture_output=True, cwd=tmp_path
    )
    assert done.stdout.strip()
