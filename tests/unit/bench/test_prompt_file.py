"""Prompts from files: every form is read, and what is wrong is told with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from macspec.bench.promptfile import MAX_TOKENS, from_file
from macspec.errors import BadOptionError


def written(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def test_spec_bench(tmp_path: Path) -> None:
    file = written(
        tmp_path / "question.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["One?", "Two?"]},
        {"question_id": 161, "category": "translation", "turns": ["A"], "reference": ["B"]},
        {"question_id": 241, "category": "summarization", "turns": ["C"], "reference": "D d"},
        {"question_id": 481, "category": "rag", "turns": ["E"], "reference": [["F", " G "], ["H"]]},
        {"question_id": 482, "category": "rag", "turns": ["E"], "reference": [[""]]},
    )
    tasks = from_file(file)
    assert [task.workload for task in tasks] == [
        "mt_bench", "translation", "summarization", "rag", "rag",
    ]  # fmt: skip
    assert [task.forced for task in tasks] == [None, None, "D d", "F\nG\nH", None]
    assert tasks[0].then == ("Two?",)
    assert tasks[0].messages == ({"role": "user", "content": "One?"},)
    assert {task.source for task in tasks} == {"question.jsonl"}
    assert {task.max_tokens for task in tasks} == {MAX_TOKENS}
    assert all(task.forced is None for task in from_file(file, force=False))


def test_human_eval_packed(tmp_path: Path) -> None:
    file = tmp_path / "HumanEval.jsonl.gz"
    entry = {
        "task_id": "HumanEval/0",
        "prompt": "def f():\n",
        "canonical_solution": "    return 1\n",
        "test": "",
        "entry_point": "f",
    }
    file.write_bytes(gzip.compress(json.dumps(entry).encode()))
    (task,) = from_file(file, max_tokens=99)
    assert task.raw
    assert (task.id, task.workload, task.max_tokens) == ("HumanEval/0", "humaneval", 99)
    assert (task.messages[0]["content"], task.forced) == ("def f():\n", "    return 1\n")


def test_the_plain_form(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    file = written(
        tmp_path / "mine.jsonl",
        {"prompt": "Hi"},
        {"messages": turns, "id": "x", "workload": "w", "max_tokens": 7, "language": "de"},
        {"question": "q", "answer": "r"},
        {"instruction": "i", "context": "", "input": "n", "output": "o", "task_id": "t"},
    )
    hi, chat, asked, edit = from_file(file)
    assert (hi.id, hi.workload, hi.forced) == ("1", "mine", None)
    assert list(chat.messages) == turns
    assert (chat.id, chat.workload, chat.max_tokens, chat.language) == ("x", "w", 7, "de")
    assert (asked.messages[0]["content"], asked.forced) == ("q", "r")
    assert (edit.id, edit.messages[0]["content"], edit.forced) == ("t", "i\n\nn", "o")


def test_an_array_and_a_mark_of_byte_order(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"prompt": "a"}, {"prompt": "b"}], indent=1), encoding="utf-8-sig")
    assert [task.messages[0]["content"] for task in from_file(file)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no prompts"),
        ("\n \n", "has no prompts"),
        ("[]", "has no prompts"),
        ('{"prompt": "a"}\n{"prompt": ', "line 2: not JSON"),
        ('\n\n"text"', "line 3: not an object"),
        ('[{"prompt": "a"}, 3]', "entry 2: not an object"),
        ('[{"prompt": "a"},\n', "not JSON: .*: line 2 column"),
        ("[" * 100_000, "not JSON: maximum recursion depth"),
        ('{"text": "a"}', "line 1: unknown form"),
        ('{"prompt": ""}', "line 1: prompt is empty or not text"),
        ('{"prompt": 3}', "prompt is empty or not text"),
        ('{"prompt": "a\\ud83d"}', "not valid Unicode"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens is 0; it must be at least 1"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens is True"),
        ('{"prompt": "a", "id": [1]}', "id is neither"),
        (
            '{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}',
            "line 2: '1' is already in line 1",
        ),
        ('{"prompt": "a", "answer": 5}', "the answer is empty or not text"),
        ('{"prompt": "a", "workload": 5}', "workload is empty or not text"),
        ('{"instruction": "a", "input": 5}', "context or input is not text"),
        ('{"turns": "a"}', "turns is not a list"),
        ('{"turns": []}', "turns is not a list"),
        ('{"turns": ["a", 3]}', "turn 2 is empty or not text"),
        ('{"turns": ["a"], "category": "rag", "reference": [3]}', "reference is not text"),
        ('{"messages": []}', "messages is not a list"),
        ('{"messages": [{"role": "tool", "content": "a"}]}', "role of message 1"),
        ('{"messages": [{"role": "user"}]}', "message 1 is empty or not text"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "is not the user's"),
        ('{"prompt": "a", "canonical_solution": " "}', "canonical_solution is empty or not text"),
        ('{"canonical_solution": "b"}', "prompt is empty or not text"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text)
    with pytest.raises(BadOptionError, match=words) as caught:
        from_file(file)
    assert "a.jsonl" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, data in (
        ("a", b"\xff\xfe"),
        ("b", b"\x1f\x8bnonsense"),
        ("c", gzip.compress(b"{}")[:9]),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadOptionError, match="cannot read"):
            from_file(tmp_path / name)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadOptionError, match="cannot read"):
            from_file(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
NAMES = (
    "turns category reference prompt messages question answer output instruction input context "
    "canonical_solution id task_id question_id max_tokens language workload"
)
KEYS = st.sampled_from(NAMES.split())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.dictionaries(KEYS, JSON, max_size=5), max_size=3))
def test_any_file_is_tasks_or_one_clear_line(tmp_path: Path, entries: list[Any]) -> None:
    file = written(tmp_path / "a.jsonl", *entries)
    try:
        tasks = from_file(file)
    except BadOptionError:
        return
    assert len(tasks) == len(entries)
    assert len({task.id for task in tasks}) == len(tasks)
    assert all(task.messages[-1]["content"].strip() and task.max_tokens > 0 for task in tasks)


def test_the_files_of_others(shared: Path) -> None:
    folder = shared / "data" / "prompts"
    tasks = from_file(folder / "spec_bench.question.jsonl")
    assert len(tasks) == 480
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.workload] = counts.get(task.workload, 0) + 1
        assert (task.forced is not None) == (task.workload in ("summarization", "rag"))
        assert bool(task.then) == (task.workload == "mt_bench")
    assert set(counts.values()) == {80}
    assert len(counts) == 6
    human = from_file(folder / "HumanEval.jsonl.gz")
    assert len(human) == 164
    assert all(task.raw and task.forced for task in human)
    for name, many in (
        ("edit_eval.jsonl", 194),
        ("gsm8k.test.jsonl", 1319),
        ("mt_bench.question.jsonl", 80),
        ("rasbt_instructions.json", 1100),
    ):
        assert len(from_file(folder / name)) == many
