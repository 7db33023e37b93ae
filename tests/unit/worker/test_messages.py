"""What crosses the pipe comes out as it went in."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from macspec.events import (
    Emitted,
    Finished,
    Notice,
    Prefilled,
    Prefilling,
    ReplyStats,
    Round,
    Text,
    TokenLogprob,
)
from macspec.worker import messages
from macspec.worker.messages import TOP, decode, encode

# Half of a surrogate pair is what a broken tokenizer may bring.
texts = st.text(st.characters())
counts = st.integers(0, 2**63)
numbers = st.floats(allow_nan=False)
options = st.dictionaries(texts, st.none() | st.booleans() | counts | numbers | texts)
names = texts | st.none()
choices = st.builds(messages.PairChoice, target=names, draft=names, context=counts | st.none())
tunings = st.builds(messages.Tuning, texts, counts | texts, texts, options)
pairs = st.builds(messages.PairInfo, *[texts, names, names], *[counts] * 3)
emitted = st.builds(Emitted, counts, names)
spans = st.lists(st.tuples(counts, names)).map(tuple)
ids = st.lists(counts).map(tuple)
turns = st.lists(st.fixed_dictionaries({"role": texts, "content": texts})).map(tuple)
likely = st.lists(st.tuples(texts, numbers)).map(tuple)
stats = st.builds(
    ReplyStats, acceptance_by_position=st.lists(numbers).map(tuple), ttft_s=numbers | st.none()
)

EVERY = {
    messages.PairChoice: choices,
    messages.ReplyRequest: st.builds(
        messages.ReplyRequest,
        texts | turns,
        counts | st.none(),
        st.lists(texts).map(tuple),
        forced=ids | st.none(),
        resume=st.booleans(),
    ),
    messages.SharedReply: st.builds(
        messages.SharedReply,
        st.builds(messages.ReplyRequest, turns),
        options,
        texts,
        counts | st.none(),
        texts,
    ),
    messages.Queued: st.builds(messages.Queued, counts),
    messages.ToolCall: st.builds(messages.ToolCall, texts, texts),
    messages.Tune: st.builds(messages.Tune, options),
    messages.GetStatus: st.just(messages.GetStatus()),
    messages.MeasureMargin: st.builds(
        messages.MeasureMargin, st.builds(messages.ReplyRequest, texts), ids, ids
    ),
    messages.CountTokens: st.builds(messages.CountTokens, st.builds(messages.ReplyRequest, turns)),
    messages.MeasuredEnergy: st.builds(
        messages.MeasuredEnergy, numbers, st.just((("draft", 2, 0.5), (None, 0, 1.5)))
    ),
    messages.PromptTokens: st.builds(messages.PromptTokens, *[counts] * 4),
    messages.ScoreMargin: st.builds(messages.ScoreMargin, numbers, numbers),
    messages.Stop: st.builds(messages.Stop, counts),
    messages.Close: st.just(messages.Close()),
    Prefilling: st.builds(Prefilling, counts, counts),
    Prefilled: st.builds(Prefilled, counts, counts, numbers, counts),
    Text: st.builds(Text, texts, st.lists(emitted).map(tuple), spans, texts),
    Round: st.builds(
        Round,
        ids,
        names,
        *[counts] * 3,
        *[numbers] * 3,
        texts,
        logprobs=st.lists(st.builds(TokenLogprob, texts, numbers, likely)).map(tuple),
    ),
    Notice: st.builds(Notice, texts),
    Finished: st.builds(Finished, texts, texts, ids, counts, texts, texts, counts | texts, stats),
    messages.LoadProgress: st.builds(messages.LoadProgress, texts, counts, counts, texts),
    messages.Loaded: st.builds(messages.Loaded, pairs, st.booleans()),
    messages.Tuned: st.builds(messages.Tuned, tunings),
    messages.Status: st.builds(
        messages.Status,
        pairs | st.none(),
        tunings,
        texts,
        *[counts] * 3,
        kernels=texts,
        plain_seconds=numbers | st.none(),
    ),
    messages.Failed: st.builds(messages.Failed, texts, texts),
}


def test_every_message_is_tried() -> None:
    assert set(EVERY) == set(TOP)


@given(counts, st.one_of(*EVERY.values()))
def test_a_message_survives_the_line(call: int, message: object) -> None:
    line = encode(call, message)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    # Not a number is not equal to itself.
    assert repr(decode(line)) == repr((call, message))


def test_a_line_is_json_of_strings_and_numbers() -> None:
    tokens = (Emitted(7, "draft"), Emitted(8, None))
    event = Text("a\nb\x1b]52;", tokens, ((3, "draft"), (5, None)), "reasoning")
    packed = [{"Emitted": [7, "draft"]}, {"Emitted": [8, None]}]
    fields = ["a\nb\x1b]52;", packed, [[3, "draft"], [5, None]], "reasoning"]
    assert json.loads(encode(3, event)) == [3, {"Text": fields}]
