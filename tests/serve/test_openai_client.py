"""OpenAI's own client against a real engine: what it asks for, it gets, and exactly."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import openai
import pytest
from openai import OpenAI

from macspec.worker import ProcessEngine
from macspec.worker.shared import LONG

MESSAGES: Any = [{"role": "user", "content": "Tell me about the harbour."}]


def create(client: OpenAI, **asked: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "macspec", "messages": MESSAGES, "max_tokens": 24, **asked}
    )


def text_of(stream: Any) -> str:
    return "".join(it.choices[0].delta.content or "" for it in stream if it.choices)


def test_models_are_listed_under_their_name_and_one_that_never_changes(client: OpenAI) -> None:
    names = [it.id for it in client.models.list()]
    assert names == ["org/model", "macspec"]
    assert client.models.retrieve(names[0]).id == names[0]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 7}])
def test_a_reply_is_the_same_whole_streamed_and_without_speculation(
    client: OpenAI, sampling: dict[str, Any]
) -> None:
    drafting = {"extra_body": {"macspec": {"method": "draft", "depth": 3}}}
    whole = create(client, **drafting, **sampling)
    text = whole.choices[0].message.content
    assert text
    # So long that it is tokenized beside the rounds.
    predicted = {"type": "content", "content": text * 200}
    assert len(predicted["content"]) > LONG
    assert text_of(create(client, stream=True, prediction=predicted, **sampling)) == text
    off = create(client, extra_body={"macspec": {"method": "off"}}, **sampling)
    assert off.choices[0].message.content == text
    assert off.model_extra["macspec"]["drafted"] == 0 < whole.model_extra["macspec"]["drafted"]
    assert whole.usage.completion_tokens == 24
    assert whole.choices[0].finish_reason == "length"


def test_a_stop_text_ends_a_reply_before_it(client: OpenAI) -> None:
    whole = create(client, temperature=0).choices[0].message.content
    stop = whole[8:12]
    cut = create(client, temperature=0, stop=[stop, "never"])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_log_probabilities_are_the_targets_own_at_any_temperature(client: OpenAI) -> None:
    asked = {"logprobs": True, "top_logprobs": 3, "max_tokens": 8, "seed": 1}
    reply = create(client, temperature=0, **asked).choices[0]
    entries = reply.logprobs.content
    assert "".join(it.token for it in entries) == reply.message.content
    for it in entries:
        assert len(it.top_logprobs) == 3
        assert it.top_logprobs[0].token == it.token
        assert it.top_logprobs[0].logprob == it.logprob < 0
    hot = create(client, temperature=2, **asked).choices[0].logprobs.content
    assert hot[0].top_logprobs == entries[0].top_logprobs
    assert hot[0].token != entries[0].token


KIND = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"]}


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 7}])
def test_json_of_a_schema_is_the_same_whole_streamed_and_without_speculation(
    client: OpenAI, sampling: dict[str, Any]
) -> None:
    schema = {"name": "pet", "schema": {**KIND, "additionalProperties": False}, "strict": True}
    asked = {"response_format": {"type": "json_schema", "json_schema": schema}, **sampling}
    drafting = {"extra_body": {"macspec": {"method": "draft", "depth": 3}}}
    whole = create(client, max_tokens=60, **drafting, **asked)
    text = whole.choices[0].message.content
    assert json.loads(text)["kind"] in ("cat", "dog")
    assert whole.choices[0].finish_reason == "stop"
    off = {"extra_body": {"macspec": {"method": "off"}}}
    assert text_of(create(client, max_tokens=60, stream=True, **off, **asked)) == text


def test_json_mode_writes_an_object(client: OpenAI) -> None:
    asked = {"response_format": {"type": "json_object"}, "temperature": 0}
    assert create(client, **asked).choices[0].message.content.startswith("{")


def test_a_text_is_continued_as_it_is(client: OpenAI) -> None:
    asked: Any = {"model": "macspec", "prompt": "The old", "max_tokens": 6, "temperature": 0}
    reply = client.completions.create(logprobs=2, **asked).choices[0]
    assert reply.logprobs is not None
    assert "".join(reply.logprobs.tokens or []) == reply.text
    stream = client.completions.create(stream=True, **asked)
    assert "".join(it.choices[0].text for it in stream) == reply.text


def test_a_conversation_goes_on_where_its_cache_ends(client: OpenAI) -> None:
    first = create(client, temperature=0)
    more: Any = [
        *MESSAGES,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "Go on."},
    ]
    second = create(client, temperature=0, messages=more)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"model": "gpt"}, 404, "there is no model 'gpt' here"),
        ({"messages": []}, 400, "messages is empty"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "the prompt is empty"),
        ({"messages": [{"role": "user", "content": "a " * 10_000}]}, 400, "the context holds 1024"),
        ({"messages": [{"role": "owner", "content": "hi"}]}, 400, "role"),
        ({"top_p": 7}, 400, "top-p is 7"),
        ({"seed": -1}, 400, "seed is -1"),
        ({"extra_body": {"macspec": {"method": "eagle"}}}, 400, "no eagle head"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "it", "schema": {"type": "nope"}},
                }
            },
            400,
            "the JSON schema is not possible: Invalid type: nope",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "calls no tools"),
    ],
    ids=lambda it: str(it)[:60],
)
def test_what_the_engine_refuses_is_one_clear_error(
    client: OpenAI, asked: dict[str, Any], status: int, words: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as caught:
            create(client, stream=stream, **asked)
        assert caught.value.status_code == status
        assert words in caught.value.message
        assert "\n" not in caught.value.body["message"]  # type: ignore[index]


@pytest.mark.slow
def test_an_engine_that_was_killed_is_started_again(
    client: OpenAI, real_engine: ProcessEngine
) -> None:
    whole = create(client, temperature=0).choices[0].message.content
    stream = create(client, temperature=0, stream=True, max_tokens=900)
    next(stream)
    assert real_engine.pid is not None
    os.kill(real_engine.pid, signal.SIGKILL)
    with pytest.raises(openai.APIError, match="the engine stopped"):
        list(stream)
    assert create(client, temperature=0).choices[0].message.content == whole
