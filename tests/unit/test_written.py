"""What a reply has written, and by whom."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from macspec.events import Text
from macspec.text import Written

spans = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([None, "draft", "ngram"])))
texts = st.builds(
    lambda spans, part: Text("x" * sum(n for n, _ in spans), (), tuple(spans), part),
    spans,
    st.sampled_from(["answer", "reasoning", "tag"]),
)


@given(st.lists(texts))
def test_characters_add_up_part_by_part(events: list[Text]) -> None:
    written, answer, reasoning = Written(), "", ""
    for event in events:
        more, thought = written.take(event)
        answer, reasoning = answer + more, reasoning + thought
    assert written.characters == sum(len(event.delta) for event in events)
    for found, text in ((written.spans, answer), (written.reasoning_spans, reasoning)):
        assert found is not None
        assert sum(length for length, _ in found) == len(text)
        assert all(one[1] != other[1] for one, other in pairwise(found))


def test_what_is_not_known_of_a_part_is_not_known_of_the_whole() -> None:
    written = Written()
    written.take(Text("ab", (), ((2, None),)))
    written.take(Text("cd", (), ()))
    written.take(Text("ef", (), ((2, None),)))
    written.take(Text("gh", (), ((2, "draft"),), "reasoning"))
    assert written.spans is None
    assert written.reasoning_spans == [(2, "draft")]
    resumed = Written(None, [(4, None)])
    resumed.take(Text("ab", (), ((2, None),)))
    resumed.take(Text("cd", (), ((2, None),), "reasoning"))
    assert (resumed.spans, resumed.reasoning_spans) == (None, [(6, None)])
