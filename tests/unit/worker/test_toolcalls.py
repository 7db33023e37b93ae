"""Calls of tools in streamed text, with the parsers of mlx-lm."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from mlx_lm.tool_parsers import json_tools, mistral, pythonic, qwen3_coder

from macspec.events import Text
from macspec.worker import ToolCall
from macspec.worker.toolcalls import ToolReader

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
CALL = ToolCall("weather", '{"city": "Ulm"}')

WRITTEN = {
    json_tools: '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>',
    qwen3_coder: "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n"
    "</function>\n</tool_call>",
    pythonic: '<|tool_call_start|>[weather(city="Ulm")]<|tool_call_end|>',
    mistral: '[TOOL_CALLS]weather[ARGS]{"city": "Ulm"}',
}


def reader(parser: Any, tools: Any = TOOLS) -> ToolReader:
    return ToolReader(
        SimpleNamespace(
            tool_call_start=parser.tool_call_start,
            tool_call_end=parser.tool_call_end,
            tool_parser=parser.parse_tool_call,
        ),
        tools,
    )


def read(it: ToolReader, text: str, size: int) -> tuple[str, list[ToolCall]]:
    """What comes out of a text that comes in pieces of this size."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    out = [part for piece in pieces for part in it.read(Text(piece, ()))] + [*it.finish()]
    said = "".join(part.delta for part in out if isinstance(part, Text))
    return said, [part for part in out if isinstance(part, ToolCall)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("parser", WRITTEN, ids=lambda it: it.__name__.rpartition(".")[2])
def test_a_call_is_taken_out_of_the_text(parser: Any, size: int) -> None:
    written = WRITTEN[parser]
    said, calls = read(reader(parser), f"I look. {written}", size)
    assert said == "I look. "
    assert [(it.name, json.loads(it.arguments)) for it in calls] == [("weather", {"city": "Ulm"})]


@pytest.mark.parametrize("size", [1, 4])
def test_several_calls_and_the_text_between_them(size: int) -> None:
    written = WRITTEN[json_tools]
    said, calls = read(reader(json_tools), f"a < b {written} and {written} c", size)
    assert (said, calls) == ("a < b  and  c", [CALL, CALL])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nno call at all\n</tool_call> after",
        '<tool_call>{"name": "weather", "arguments"',
        '<tool_call>{"arguments": {}}</tool_call>',
        "ends with <tool_ca",
        "<<tool_call",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read(reader(json_tools), text, 2) == (text, [])


def test_nothing_is_taken_out_where_no_tools_were_offered() -> None:
    text = WRITTEN[json_tools]
    assert read(reader(json_tools, []), text, 5) == (text, [])
    event = Text("<tool_call>", (), part="reasoning")
    assert [*reader(json_tools).read(event)] == [event]
