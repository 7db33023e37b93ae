"""Conversations with the formats of current families, with reasoning and without."""

from __future__ import annotations

import pytest
from chatformats import FAMILIES, pair_of, tokenizer_of

from macspec.events import Text
from macspec.parts import PartReader
from macspec.prompt import Prompt, Prompting
from macspec.text import TextStream, Written

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
    assert prompting.efforts
    assert not prompting.thinks
    prompt = prompting.chat("Why?", 4096, 64, think="high")
    assert "Reasoning: high" in tokenizer_of("gpt-oss").decode(prompt.tokens)
