"""Conversations with the formats of current families, with reasoning and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from chatformats import FAMILIES, pair_of, tokenizer_of
from mlx_lm.models import gpt_oss, llama

from macspec import Session, load_pair
from macspec.events import Text
from macspec.models import Pair
from macspec.parts import PartReader
from macspec.prompt import Prompt, Prompting
from macspec.text import TextStream, Written, common_prefix

TURNS = 10
SYSTEM = {"role": "system", "content": "Answer briefly."}
REASONED = [name for name, family in FAMILIES.items() if family.reasons]


def ids_of(name: str, text: str) -> list[int]:
    return list(tokenizer_of(name).encode(text, add_special_tokens=False))


def reply_of(name: str, prompt: Prompt, prompting: Prompting, text: str) -> dict[str, str]:
    """A reply as the app stores it: answer and reasoning, without tags."""
    tokenizer = tokenizer_of(name)
    stream = TextStream(tokenizer, parts=PartReader(prompting.format, prompt.part))
    pieces = [piece for token in ids_of(name, text) for piece in stream.push(token)]
    written, answer, reasoning = Written(), "", ""
    for piece in pieces + stream.finish():
        more, thought = written.take(Text(piece.text, (), tuple(piece.spans), piece.part))
        answer, reasoning = answer + more, reasoning + thought
    return {"role": "assistant", "content": answer, "reasoning": reasoning}


@pytest.mark.parametrize("reasons", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_ten_turns(name: str, reasons: bool) -> None:
    family = FAMILIES[name]
    if reasons and not family.reasons:
        reasons = False
    prompting = Prompting(pair_of(name))
    think = reasons if family.switch else None
    messages: list[dict[str, str]] = [SYSTEM]
    said = family.reasons if reasons else family.answers
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Question {turn}"})
        prompt = prompting.chat(messages, 4096, 64, think=think)
        text = tokenizer_of(name).decode(prompt.tokens)
        assert text.count("Question") == turn + 1
        assert text.count("Answer briefly.") == 1
        assert text.count("Reply") == turn
        assert text.count("Thought") == (turn if reasons and family.keeps else 0)
        answer = said.format(r=f"Thought {turn}?", a=f"Reply {turn}.")
        reply = reply_of(name, prompt, prompting, answer)
        assert reply["content"] == f"Reply {turn}."
        assert reply["reasoning"].strip() == (f"Thought {turn}?" if reasons else "")
        messages.append(reply)


@pytest.mark.parametrize("name", REASONED)
@pytest.mark.parametrize("broken_off", ["reasoning", "answer"])
def test_an_interrupted_reply_goes_on_in_its_part(name: str, broken_off: str) -> None:
    family, prompting = FAMILIES[name], Prompting(pair_of(name))
    think = True if family.switch else None
    user = {"role": "user", "content": "Why?"}
    begun = {"role": "assistant", "content": "", "reasoning": "Thought"}
    if broken_off == "answer":
        begun["content"] = "Reply"
    prompt = prompting.chat([user, begun], 4096, 64, think=think, resume=True)
    fresh = prompting.chat([user], 4096, 64, think=think)
    assert prompt.tokens[: len(fresh.tokens)] == fresh.tokens
    assert prompt.part == broken_off
    rest = family.reasons.partition("{r}")[2] if broken_off == "reasoning" else "{a}"
    reply = reply_of(name, prompt, prompting, rest.format(a=" more."))
    assert reply["content"].strip() == "more."
    # What it goes on from is, but for line breaks, what the model had written.
    written = tokenizer_of(name).decode(prompt.tokens[len(fresh.tokens) :])
    whole = family.reasons.format(r=begun["reasoning"], a=begun["content"])
    if broken_off == "reasoning":
        whole = whole.partition(begun["reasoning"])[0] + begun["reasoning"]
    assert written.replace("\n", "") == whole.replace("\n", "")


def test_a_conversation_stored_with_headers_is_not_refused() -> None:
    prompting = Prompting(pair_of("gpt-oss"))
    stored = FAMILIES["gpt-oss"].reasons.format(r="Thought", a="Reply")
    for content, shown in (
        (stored, "final<|message|>Reply<|end|>"),
        (f"It writes {stored}", "It writes <channel>analysis<message>Thought"),
    ):
        messages = [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "So?"},
        ]
        prompt = prompting.chat(messages, 4096, 64)
        assert shown in tokenizer_of("gpt-oss").decode(prompt.tokens)


def test_marks_in_a_question_do_not_decide_where_the_reply_begins() -> None:
    for name in REASONED:
        family, prompting = FAMILIES[name], Prompting(pair_of(name))
        think = False if family.switch else None
        expected = prompting.chat("Why?", 4096, 64, think=think).part
        tricky = family.reasons.format(r="x", a="y")
        opening = family.reasons.partition("{r}")[0]
        for question in (tricky, opening, f"{tricky}<|start|>"):
            assert prompting.chat(f"Why? {question}", 4096, 64, think=think).part == expected


def test_efforts_of_gpt_oss() -> None:
    prompting = Prompting(pair_of("gpt-oss"))
    assert prompting.efforts == ("low", "medium", "high")
    assert not prompting.thinks
    prompt = prompting.chat("Why?", 4096, 64, think="high")
    assert "Reasoning: high" in tokenizer_of("gpt-oss").decode(prompt.tokens)


CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
}
WINDOWED = {
    **CONFIG,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_theta": 10000,
    "rope_scaling": None,
}


@pytest.fixture(scope="module")
def built_in() -> Pair:
    return load_pair(context=2048)


def random_pair(built_in: Pair, name: str, architecture: Any, config: dict[str, Any]) -> Pair:
    """A tiny random model with a family's tokenizer."""
    tokenizer = tokenizer_of(name)
    width = len(tokenizer)
    settings = {**config, "model_type": architecture.__name__.split(".")[-1], "vocab_size": width}
    mx.random.seed(5)
    module = architecture.Model(architecture.ModelArgs.from_dict(settings))
    module.set_dtype(mx.float32)
    target = replace(built_in.target, module=module, tokenizer=tokenizer, width=width)
    end = frozenset(tokenizer.eos_token_ids)
    pair = replace(built_in, target=target, draft=None, head=None)
    return replace(pair, vocabulary=width, stop_ids=end)


@pytest.mark.parametrize(
    ("name", "windowed", "words"),
    [
        ("gpt-oss", True, 10),
        ("Gemma 4", True, 10),
        ("Qwen3.5", False, 10),
        ("Ministral 3", False, 10),
        *(
            pytest.param(name, windowed, words, marks=pytest.mark.slow)
            for name in ("gpt-oss", "Qwen3.5", "Gemma 4")
            for windowed, words in ((True, 300), (False, 10))
        ),
    ],
)
def test_what_survives_of_a_turn_is_not_read_again(
    built_in: Pair, name: str, windowed: bool, words: int
) -> None:
    family = FAMILIES[name]
    kind = (gpt_oss, WINDOWED) if windowed else (llama, CONFIG)
    session = Session(random_pair(built_in, name, *kind), method="off")
    think = True if family.switch else None
    messages: list[dict[str, str]] = []
    before: list[int] = []
    prompt_length = 0
    for turn in range(2):
        messages.append({"role": "user", "content": f"Question {turn}, which has some words."})
        thought = f"Thought {turn}{' so' * words}."
        said = family.reasons.format(r=thought, a=f"Reply {turn}.")
        forced = [*ids_of(name, said), *tokenizer_of(name).eos_token_ids]
        events = list(session.reply(messages, think=think, forced=forced))
        finished = session.finished
        assert finished is not None
        assert (finished.reason, finished.token_ids) == ("end", tuple(forced))
        prompt = session.decoder.tokens[: -len(forced)]
        shared = common_prefix(before, prompt)
        survives, cached = min(shared, max(len(before) - 1, 0)), finished.stats.cached_tokens
        if windowed and not family.keeps:
            # A reply that is longer than what the windows keep: back to where it began.
            began = min(shared, max(prompt_length - 1, 0))
            assert began <= cached <= (began if words > 99 else survives)
        else:
            assert cached == survives
        assert turn == 0 or shared > 0.5 * prompt_length
        before, prompt_length = list(session.decoder.tokens), len(prompt)
        texts = [event for event in events if isinstance(event, Text)]
        parts = {
            part: "".join(event.delta for event in texts if event.part == part).strip()
            for part in ("answer", "reasoning")
        }
        assert parts == {"answer": f"Reply {turn}.", "reasoning": thought}
        answer, reasoning = parts.values()
        messages.append({"role": "assistant", "content": answer, "reasoning": reasoning})
