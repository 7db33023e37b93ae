"""What crosses the wire for the events of a reply, as OpenAI's client reads it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from serving import (
    HELLO,
    ScriptedClient,
    a_round,
    ask,
    chat,
    finished,
    openai_client,
    said,
)

from macspec.events import Notice, Prefilled, Prefilling, TokenLogprob
from macspec.serve import replies
from macspec.worker import Call, Queued, ToolCall
from macspec.worker.messages import Failed

TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


def create(server: Any, **asked: Any) -> Any:
    with openai_client(server) as client:
        made = client.chat.completions.create(**{**chat(), **asked})
        return list(made) if asked.get("stream") else made


def test_a_stream_says_what_the_whole_reply_does(server: Any, engine: ScriptedClient) -> None:
    whole = create(server)
    chunks = create(server, stream=True, stream_options={"include_usage": True})
    assert "".join(it.choices[0].delta.content or "" for it in chunks[:-1]) == "Hello there"
    assert whole.choices[0].message.content == "Hello there"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [it.choices[0].finish_reason for it in chunks[-3:-1]] == [None, "stop"]
    assert chunks[-1].usage == whole.usage
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (7, 3)
    assert whole.usage.prompt_tokens_details.cached_tokens == 2
    ours = whole.model_extra["macspec"]
    assert ours["seed"] == 5
    assert ours["passes"] == 3
    assert chunks[-2].model_extra["macspec"]["passes"] == 3


def test_reasoning_has_a_field_of_its_own(server: Any, engine: ScriptedClient) -> None:
    engine.events = (
        Queued(7),
        Notice("for the user"),
        said("Hm.", part="reasoning"),
        said("</think>", part="tag"),
        said("Yes."),
        a_round(),
        finished(),
    )
    message = create(server).choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes.", "Hm.")
    delta = create(server, stream=True)[1].choices[0].delta
    assert (delta.content, delta.reasoning_content) == ("Yes.", "Hm.")


def test_calls_of_tools(server: Any, engine: ScriptedClient) -> None:
    engine.events = (
        Queued(7),
        said(""),
        ToolCall("weather", '{"city": "Ulm"}'),
        ToolCall("weather", "{}"),
        a_round(),
        finished(),
    )
    choice = create(server, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    calls = choice.message.tool_calls
    assert [it.function.arguments for it in calls] == ['{"city": "Ulm"}', "{}"]
    assert calls[0].id != calls[1].id
    streamed = create(server, stream=True, tools=TOOLS)[1].choices[0].delta.tool_calls
    assert [it.index for it in streamed] == [0, 1]
    answer = [
        {"role": "user", "content": "Rain?"},
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": calls[0].id, "content": "No."},
    ]
    create(server, messages=answer, tools=TOOLS)
    sent: Any = engine.asked[-1].request.messages
    function = json.loads(sent[1]["tool_calls"])[0]["function"]
    assert function == {"name": "weather", "arguments": {"city": "Ulm"}}
    assert sent[2] == {"role": "tool", "content": "No.", "tool_call_id": calls[0].id}
    assert json.loads(engine.asked[-1].tools) == TOOLS
    create(server, tools=TOOLS, tool_choice="none")
    assert engine.asked[-1].tools == ""


def test_what_look_ups_copied_of_a_prediction_is_counted(
    server: Any, engine: ScriptedClient
) -> None:
    engine.events = (
        Queued(7),
        said("Hello"),
        a_round("suffix", 5, 4),
        a_round("draft", 3, 3),
        a_round("ngram", 2, 0),
        finished(),
    )
    asked = {"prediction": {"type": "content", "content": [{"type": "text", "text": "Hello"}]}}
    details = create(server, **asked).usage.completion_tokens_details
    assert details.accepted_prediction_tokens == 4
    assert details.rejected_prediction_tokens == 3
    assert engine.asked[-1].prediction == "Hello"
    details = create(server).usage.completion_tokens_details
    assert details.accepted_prediction_tokens == 0


def test_log_probabilities_travel_with_their_text(server: Any, engine: ScriptedClient) -> None:
    scored = (TokenLogprob("He", -0.5, (("He", -0.5), ("\ufffd", -1.5))),)
    engine.events = (Queued(7), said("He"), a_round(logprobs=scored), finished())
    asked = {"logprobs": True, "top_logprobs": 2}
    for choice in (
        create(server, **asked).choices[0],
        create(server, stream=True, **asked)[1].choices[0],
    ):
        (entry,) = choice.logprobs.content
        assert (entry.token, entry.logprob, entry.bytes) == ("He", -0.5, [72, 101])
        assert [it.bytes for it in entry.top_logprobs] == [[72, 101], None]


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        ({"seed": 4}, {"rule": "keyed", "sampling": {"seed": 4}}),
        ({"seed": 4, "macspec": {"rule": "block"}}, {"rule": "block", "sampling": {"seed": 4}}),
        ({"top_k": 3, "temperature": 1}, {"sampling": {"temperature": 1, "top_k": 3}}),
        ({"logit_bias": {"7": -1}}, {"sampling": {"logit_bias": [(7, -1.0)]}}),
        ({"macspec": {"method": "off", "depth": 2}}, {"method": "off", "depth": 2, "sampling": {}}),
        ({"temperature": None, "user": "me", "store": False}, {"sampling": {}}),
    ],
    ids=str,
)
def test_fields_of_a_request_are_changes_of_the_engines_settings(
    server: Any, engine: ScriptedClient, asked: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert ask(server, chat(**asked))[0] == 200
    assert engine.asked[-1].changes == changes


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"reasoning_effort": "none"}, "think", False),
        ({"reasoning_effort": "low"}, "think", "low"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "think", True),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", 4),
        ({"stop": "x"}, "stop", ("x",)),
        ({"messages": [{"role": "developer", "content": "Be brief."}]}, "messages", None),
    ],
    ids=str,
)
def test_fields_of_a_request_are_those_of_a_reply(
    server: Any, engine: ScriptedClient, asked: dict[str, Any], field: str, value: Any
) -> None:
    assert ask(server, chat(**asked))[0] == 200
    found = getattr(engine.asked[-1].request, field)
    assert found == (value or ({"role": "system", "content": "Be brief."},)) or found is value


def test_a_quiet_stream_sends_comments_that_clients_ignore(
    server: Any, engine: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "QUIET", 0.05)
    engine.events = (Queued(7), Prefilling(512, 4096), Prefilled(7, 2, 0.1))
    seen: list[Call] = []
    engine.more = seen.append

    def answer() -> None:
        call = seen.pop()
        for event in HELLO[2:]:
            call.put(event)

    with openai_client(server) as client:
        request = client.chat.completions.with_streaming_response.create(**chat(stream=True))
        with request as response:
            lines = response.iter_lines()
            found = []
            for line in lines:
                found.append(line)
                if line == ": waiting":
                    answer()
                    break
            found += lines
    assert ": 512 of 4096 tokens read" in found
    assert found[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in found[-2:]


@pytest.mark.parametrize(
    ("failed", "status"),
    [
        (Failed("refused", "no", "BadOptionError"), 400),
        (Failed("error", "unexpected"), 500),
        (Failed("crashed", "lost"), 503),
    ],
    ids=lambda it: str(it)[:20],
)
def test_an_engine_that_fails(
    server: Any, engine: ScriptedClient, failed: Failed, status: int
) -> None:
    engine.events = (failed,)
    for stream in (False, True):
        assert ask(server, chat(stream=stream))[0] == status
    engine.events = (*HELLO[:4], failed)
    with pytest.raises(openai.APIError, match=failed.message):
        create(server, stream=True)


def test_paths_that_are_not_there(server: Any) -> None:
    for path in ("/", "/v1/embeddings", "/v1/chat"):
        status, body = ask(server, chat(), path)
        assert status == 404
        assert "the API begins at /v1" in body["error"]["message"]
    assert ask(server, chat(), "/v1/models")[0] == 405
