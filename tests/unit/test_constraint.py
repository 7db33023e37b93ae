"""Replies constrained to a JSON schema: exactly what plain decoding writes under the same mask."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tinymodels import noisy_folder, saved

from macspec import Session, load_pair
from macspec.constraint import LARGEST, Constraints
from macspec.errors import BadOptionError
from macspec.events import Finished, Round
from macspec.models import Pair
from macspec.parts import ANSWER, REASONING
from macspec.sampling import Sampling

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "sizes": {"type": "array", "items": {"enum": [1, 22]}, "maxItems": 1},
        },
        "required": ["kind", "sizes"],
        "additionalProperties": False,
    }
)
SAMPLINGS = [
    (Sampling(0), "block"),
    (Sampling(1.0, seed=3), "keyed"),
    (Sampling(1.0, seed=3), "block"),
]

REASONING_FIRST = "{% for m in messages %}{{ m.content }}\n{% endfor %}<think>"


def said(pair: Pair, method: str, rule: str, sampling: Sampling) -> tuple[Finished, list[Round]]:
    """A constrained reply and its rounds."""
    session = Session(pair, method=method, rule=rule, depth=3, kernels="off")
    prompt = session._prompt("What is it?", 60, False, None, "refuse", False)
    constraint = Constraints(pair).of(SCHEMA, prompt.part)
    events = [*session.reply(prompt, sampling, max_tokens=60, constraint=constraint)]
    assert isinstance(events[-1], Finished)
    return events[-1], [it for it in events if isinstance(it, Round)]


def checked(text: str) -> None:
    value = json.loads(text)
    assert [*value] == ["kind", "sizes"]
    assert value["kind"] in ("cat", "dog")
    assert value["sizes"] in ([], [1], [22])


@pytest.mark.parametrize(("sampling", "rule"), SAMPLINGS, ids=["greedy", "keyed", "block"])
def test_a_constrained_reply_is_the_same_with_speculation_and_fits_its_schema(
    small: Pair, sampling: Sampling, rule: str
) -> None:
    drafted, rounds = said(small, "draft", rule, sampling)
    assert drafted.reason == "end"
    checked(drafted.text)
    assert sum(it.accepted for it in rounds) < sum(it.drafted for it in rounds)
    assert not any(it.branched for it in rounds)
    if rule == "keyed" or sampling.greedy:
        assert said(small, "off", rule, sampling)[0].token_ids == drafted.token_ids


def test_a_row_is_masked_by_what_comes_before_it_alone(small: Pair) -> None:
    tokenizer: Any = small.target.tokenizer
    ids = tokenizer.encode('{"kind": "dog", "sizes": [1]}', add_special_tokens=False)
    (end,) = small.stop_ids
    constraints, width = Constraints(small), small.vocabulary

    def allowed(taken: list[int], drafted: list[int]) -> Any:
        it = constraints.of(SCHEMA, ANSWER)
        for token in taken:
            it.take(token, ANSWER)
        rows = [it.masked(mx.zeros((len(drafted) + 1, width)), drafted) for _ in range(2)]
        assert mx.array_equal(*rows)  # looking ahead leaves no trace
        return np.isfinite(np.array(rows[0]))

    chain = allowed([], ids)
    for at in range(len(ids) + 1):
        assert (allowed(ids[:at], [])[0] == chain[at]).all()
        assert at == len(ids) or chain[at][ids[at]]
    assert [*np.flatnonzero(chain[-1])] == [end]
    for wrong in ([*ids[:2], end, *ids], [*ids[:2], width - 1], [*ids, end, 7]):
        rows = allowed([], wrong)
        assert (rows[:3] == chain[:3]).all()
        assert rows[-1].all()


@pytest.mark.parametrize(("sampling", "rule"), SAMPLINGS[:2], ids=["greedy", "keyed"])
def test_reasoning_is_free_and_the_constraint_holds_from_the_answer_on(
    tmp_path: Path, sampling: Sampling, rule: str
) -> None:
    """The draft model proposes what ends the reasoning and more, and the target agrees."""
    target = saved("llama", tmp_path / "target", REASONING_FIRST)
    pair = load_pair(str(target), str(noisy_folder(target, tmp_path / "draft")), context=512)
    (closing,) = pair.target.tokenizer.encode("</think>", add_special_tokens=False)
    sampling = replace(sampling, logit_bias=((closing, 1000.0),))
    found = {method: said(pair, method, rule, sampling) for method in ("off", "draft")}
    end, rounds = found["draft"]
    assert end.token_ids == found["off"][0].token_ids
    assert end.token_ids[0] == closing
    assert rounds[0].tokens == (closing,)
    assert rounds[0].drafter == "draft"
    checked(end.text.partition("</think>")[2])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "nope"}', "Invalid type: nope"),
        ('{"$ref": "http://evil.example/schema"}', "not fetch"),
        ('{"type":"array","items":' * 300 + "{}" + "}" * 300, "recursion limit"),
        ('{"type": "object", "unevaluatedProperties": 7}', "unevaluatedProperties"),
        ("{", "EOF"),
        (f'{{"const": "{"a" * LARGEST}"}}', "longer than"),
    ],
    ids=lambda it: it[:20],
)
def test_a_schema_that_cannot_be_read_is_one_clear_error(
    small: Pair, schema: str, words: str
) -> None:
    with pytest.raises(BadOptionError, match=words) as caught:
        Constraints(small).of(schema, REASONING)
    assert "\n" not in str(caught.value)


def test_without_the_package_or_a_tokenizer_that_it_reads(
    small: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        _tokenizer = None

        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

    odd = replace(small, target=replace(small.target, tokenizer=Slow()))
    with pytest.raises(BadOptionError, match="its tokenizer"):
        Constraints(odd).of(SCHEMA, ANSWER)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(BadOptionError, match="pip install"):
        Constraints(small).of(SCHEMA, ANSWER)
