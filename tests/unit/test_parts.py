"""Reasoning, answer and tags, told apart in tokens: tags and headers of every published kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.parts import (
    ANSWER,
    HEADER,
    HEADER_LENGTH,
    REASONING,
    PartReader,
    format_of,
)

START, END = 90, 91
LONG_START, LONG_END = (80, 81, 82), (83, 81)


class Tags:
    """A tokenizer that knows tags and nothing else; ids from 10 to 12 are white space."""

    def __init__(
        self, start: Sequence[int] | None = (START,), end: Sequence[int] | None = (END,)
    ) -> None:
        self.think_start_tokens, self.think_end_tokens = start, end

    def decode(self, tokens: list[int]) -> str:
        return "".join("\n" if 10 <= token <= 12 else "x" for token in tokens)


def parts(tokenizer: Any, tokens: Sequence[int], *, begun: bool = False) -> list[str]:
    reader = PartReader(format_of(tokenizer), REASONING if begun else ANSWER)
    decided = [part for token in tokens for part in reader.push(token)]
    return decided + reader.finish()


def short(found: list[str]) -> str:
    return "".join(part[0] for part in found)


def test_tags_of_one_token() -> None:
    assert short(parts(Tags(), [START, 1, 2, END, 3])) == "trrta"
    assert short(parts(Tags(), [1, START, 2])) == "atr"
    assert short(parts(Tags(), [1, END, 2])) == "aaa"
    assert short(parts(Tags(), [1, START, 2], begun=True)) == "rrr"


def test_tags_of_several_tokens_and_what_only_begins_like_one() -> None:
    long = Tags(LONG_START, LONG_END)
    assert short(parts(long, [*LONG_START, 1, *LONG_END, 2])) == "tttrtta"
    assert short(parts(long, [80, 81, 1])) == "aaa"
    assert short(parts(long, [80, *LONG_START, 1])) == "atttr"
    assert short(parts(long, [80, 81])) == "aa"


def test_without_tags_all_is_the_answer() -> None:
    assert short(parts(Tags(None, None), [START, 1, END])) == "aaa"


@given(st.lists(st.sampled_from([1, 80, 81, 82, 83]), max_size=30))
def test_every_token_has_one_part_and_a_tag_is_whole(tokens: list[int]) -> None:
    found = parts(Tags(LONG_START, LONG_END), tokens)
    assert len(found) == len(tokens)
    inside, at = False, 0
    while at < len(tokens):
        tag = LONG_END if inside else LONG_START
        if tuple(tokens[at : at + len(tag)]) == tag:
            assert found[at : at + len(tag)] == ["tag"] * len(tag)
            inside, at = not inside, at + len(tag)
        else:
            assert found[at] == ("reasoning" if inside else "answer")
            at += 1


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([1, START], True),
        ([1, START, 10, 11], True),
        ([1, START, 10, END, 11], False),
        ([START, 1], False),
        ([START, 1, 10], False),
        ([], False),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt: list[int], expected: bool) -> None:
    assert (format_of(Tags()).part_after(prompt) == REASONING) is expected
    assert format_of(Tags(None, None)).part_after(prompt) == ANSWER


class Words:
    """A tokenizer whose tokens are words, of a model with headers."""

    def __init__(self, *words: str, **attributes: Any) -> None:
        self.words = [*words]
        vars(self).update(attributes)

    def get_vocab(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def encode(self, text: str, **_: Any) -> list[int]:
        """Of words that are separated by ``.``."""
        for word in text.split("·"):
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in text.split("·")]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.words[token] for token in tokens)


def gpt_oss() -> Words:
    return Words(
        *("<|start|>", "<|end|>", "<|message|>", "<|channel|>"),
        *("<|constrain|>", "<|return|>", "<|call|>"),
    )


def muse() -> Words:
    return Words("<|start|>", "<|message|>", "<|eom|>", "<|eot|>", response_initial_state="header")


ANALYSIS, FINAL = "<|channel|>·analysis·<|message|>", "<|channel|>·final·<|message|>"
NEXT = "<|end|>·<|start|>·assistant"
CALL = "<|channel|>·commentary· to=·functions·.time· ·<|constrain|>·json·<|message|>"


def read(tokenizer: Words, prompt: str, text: str) -> list[tuple[str, str]]:
    """The parts of a reply, with the text of each."""
    format = format_of(tokenizer)
    reader = PartReader(format, format.part_after(tokenizer.encode(prompt)))
    tokens = tokenizer.encode(text)
    decided = [part for token in tokens for part in reader.push(token)] + reader.finish()
    assert len(decided) == len(tokens)
    found: list[tuple[str, str]] = []
    for part, token in zip(decided, tokens, strict=True):
        if found and found[-1][0] == part:
            found[-1] = part, found[-1][1] + tokenizer.words[token]
        else:
            found.append((part, tokenizer.words[token]))
    return [(part, text) for part, text in found if part != "tag"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ANALYSIS}·so·!·{NEXT}·{FINAL}·Yes·.", [("reasoning", "so!"), ("answer", "Yes.")]),
        (f"{FINAL}·Yes", [("answer", "Yes")]),
        (f"{ANALYSIS}·so", [("reasoning", "so")]),
        (f"{ANALYSIS}·so·<|end|>", [("reasoning", "so")]),
        (f"{ANALYSIS}·so·{NEXT}·<|channel|>·fi", [("reasoning", "so")]),
        # A preamble is for the user; a call is shown with whom it calls.
        (
            f"<|channel|>·commentary·<|message|>·Let me see.·{NEXT}·{FINAL}·Yes",
            [("answer", "Let me see."), ("answer", "Yes")],
        ),
        (f"{CALL}·{{}}·<|call|>", [("answer", "commentary to=functions.time "),
                                  ("answer", "json"), ("answer", "{}")]),
        (
            f" to=·functions·.analysis·{FINAL.replace('final', 'commentary')}·{{}}",
            [("answer", " to=functions.analysis"), ("answer", "commentary"), ("answer", "{}")],
        ),
        # A model that knows no headers after all.
        ("Yes· of· course", [("answer", "Yes of course")]),
        ("·".join("ab" * HEADER_LENGTH), [("answer", "ab" * HEADER_LENGTH)]),
        # A header without its beginning, and one right inside of a message.
        (f"analysis·<|message|>·so·{FINAL}·Yes", [("reasoning", "so"), ("answer", "Yes")]),
    ],
)  # fmt: skip
def test_channels_of_harmony(text: str, expected: list[tuple[str, str]]) -> None:
    assert read(gpt_oss(), "<|start|>·user·<|message|>·Hi·<|end|>·<|start|>·assistant", text) == (
        expected
    )


def test_recipients_of_muse_spark() -> None:
    text = "to=self·<|message|>·so·<|eom|>·<|start|>·assistant ·to=user·<|message|>·Yes·<|eot|>"
    assert read(muse(), "<|start|>·assistant ", text) == [("reasoning", "so"), ("answer", "Yes")]


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("once upon a time", ANSWER),
        ("<|start|>·assistant", HEADER),
        ("<|start|>·assistant·<|channel|>", HEADER),
        (f"<|start|>·assistant·{ANALYSIS}", REASONING),
        (f"<|start|>·assistant·{ANALYSIS}·so", REASONING),
        (f"<|start|>·assistant·{FINAL}·Yes", ANSWER),
        (f"<|start|>·assistant·{ANALYSIS}·so·{NEXT}·{FINAL}", ANSWER),
        (f"<|start|>·user·<|message|>·{ANALYSIS}·<|end|>·<|start|>·assistant", HEADER),
        ("<|start|>·user·<|message|>·the analysis", ANSWER),
    ],
)
def test_where_the_reply_to_a_prompt_begins(prompt: str, part: str) -> None:
    tokenizer = gpt_oss()
    assert format_of(tokenizer).part_after(tokenizer.encode(prompt)) == part


@given(st.lists(st.sampled_from([*range(7), 7, 8, 9]), max_size=80), st.booleans())
def test_no_token_of_a_message_is_lost(tokens: list[int], begun: bool) -> None:
    tokenizer = gpt_oss()
    tokenizer.words += ["analysis", "final", "x"]
    format = format_of(tokenizer)
    reader = PartReader(format, HEADER if begun else ANSWER)
    decided: list[str] = []
    for count, token in enumerate(tokens, 1):
        decided += reader.push(token)
        assert count - len(decided) <= HEADER_LENGTH
    decided += reader.finish()
    assert len(decided) == len(tokens)
    marks = [token in format.marks for token in tokens]
    assert all(part == "tag" for part, mark in zip(decided, marks, strict=True) if mark)


@pytest.mark.parametrize(
    ("reasoning", "answer", "expected"),
    [
        ("so", "Yes", "{a}so{n}{f}Yes"),
        ("so", "", "{a}so"),
        ("", "Yes", "{f}Yes"),
        ("", "", ""),
    ],
)
def test_a_reply_as_the_model_wrote_it(reasoning: str, answer: str, expected: str) -> None:
    marks = {"a": ANALYSIS, "f": FINAL, "n": NEXT}
    written = format_of(gpt_oss()).written(reasoning, answer, HEADER)
    assert written == expected.format(**{k: v.replace("·", "") for k, v in marks.items()})


def test_marks_in_an_earlier_reply_are_no_marks() -> None:
    format = format_of(gpt_oss())
    stored = f"{ANALYSIS}·so·{NEXT}·{FINAL}·Yes".replace("·", "")
    assert format.inert(stored) == "Yes"
    assert format.inert("Write <|channel|>analysis<|message|>.") == (
        "Write <channel>analysis<message>."
    )
    assert format_of(Tags()).inert("<|channel|>") == "<|channel|>"


@pytest.mark.parametrize("tags", [("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>")])
def test_tags_that_mlx_lm_does_not_know(tags: tuple[str, str]) -> None:
    start, end = tags
    tokenizer = Words(*tags)
    text = f"{start}·so·{end}·Yes"
    assert read(tokenizer, "[INST]·Hi", text) == [("reasoning", "so"), ("answer", "Yes")]
    assert format_of(tokenizer).written("so", "Yes", ANSWER) == text.replace("·", "")
    assert not format_of(Words(start)).marked


class Spelled(Words):
    """Encodes what it has no word for by the words that it is made of."""

    def encode(self, text: str, **options: Any) -> list[int]:
        for word in sorted(self.words, key=len, reverse=True):
            text = text.replace(word, f"·{word}·")
        return super().encode("·".join(filter(None, text.split("·"))))


@pytest.mark.parametrize(
    "tokenizer",
    [
        Spelled("<|im_middle|>", "◁", "▷", "/think", "think"),
        Spelled("◁", "▷", "/think", "think", chat_template="{{ '◁think▷' }}"),
    ],
)
def test_tags_of_kimi_are_ordinary_tokens(tokenizer: Spelled) -> None:
    text = "◁think▷so◁/think▷Yes"
    assert read(tokenizer, "Hi", text) == [("reasoning", "so"), ("answer", "Yes")]
    assert format_of(tokenizer).written("so", "Yes", ANSWER) == text
    assert read(tokenizer, "Hi", "◁so") == [("answer", "◁so")]


def test_markers_around_the_answer_of_kimi_k3() -> None:
    words = ("<|open|>", "<|close|>", "<|sep|>", "think", "response")
    think = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
    markers = ("<|open|>response<|sep|>", "<|close|>response<|sep|>")
    tokenizer = Spelled(*words, structural_markers=markers, think_start=think[0])
    vars(tokenizer).update(
        think_end=think[1],
        think_start_tokens=tokenizer.encode(think[0]),
        think_end_tokens=tokenizer.encode(think[1]),
    )
    text = f"so{think[1]}{markers[0]}Yes{markers[1]}"
    assert read(tokenizer, f"Hi{think[0]}", text) == [("reasoning", "so"), ("answer", "Yes")]
    written = format_of(tokenizer).written("so", "Yes", REASONING)
    assert written == f"so{think[1]}{markers[0]}Yes"
