"""A model that calls a tool: its template, its weights, mlx-lm's parser and OpenAI's client.

The output layer of a random transformer is fitted to two replies, by least squares on the hidden
rows before each of their tokens: a call of a tool, and what follows from the tool's answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from openai import OpenAI
from serving import MODEL, Settings, openai_client, serving
from tinymodels import noisy, saved

from macspec import load_pair
from macspec.models.template import Template
from macspec.worker import PairChoice, ProcessEngine

TEMPLATE = (
    "{% for t in tools or [] %}<tools>{{ t.function.name }}</tools>{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for tool_call in m.tool_calls or [] %}{% set tool_call = tool_call.function %}"
    '<tool_call>{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}'
    "</tool_call>{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
QUESTION: Any = [{"role": "user", "content": "Rain in Ulm?"}]
CALL = 'I look. <tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
ANSWER = " No, it is dry in Ulm."

CALLED: Any = {"name": "weather", "arguments": {"city": "Ulm"}}
MADE = [{"id": "1", "type": "function", "function": CALLED}]
ANSWERED: Any = [
    *QUESTION,
    {"role": "assistant", "content": "I look. ", "tool_calls": json.dumps(MADE)},
    {"role": "tool", "content": "dry", "tool_call_id": "1"},
]


def fitted(target: Path, draft: Path) -> None:
    """Fit the saved target's output layer, and a draft model with some noise."""
    pair = load_pair(str(target))
    template, module = Template(pair), pair.target.module
    tokenizer: Any = pair.target.tokenizer
    (end, *_) = pair.stop_ids
    before, after = [], []
    for messages, reply in ((QUESTION, CALL), (ANSWERED, ANSWER)):
        prompt = template.tokens(messages, TOOLS)
        said = [*tokenizer.encode(reply, add_special_tokens=False), end]
        rows: Any = module.model(mx.array([[*prompt, *said[:-1]]]))[0]
        before.append(np.array(rows[len(prompt) - 1 :], np.float64))
        after += said
    hidden = np.concatenate(before)
    wanted = np.zeros((len(after), module.lm_head.weight.shape[0]))
    wanted[np.arange(len(after)), after] = 8.0
    weights, *_ = np.linalg.lstsq(hidden, wanted)
    module.lm_head.weight = mx.array(weights.T, mx.float32)
    for model, folder in ((module, target), (noisy(module), draft)):
        model.save_weights(str(folder / "model.safetensors"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    folder = tmp_path_factory.mktemp("tools")
    wide = {"hidden_size": 128}
    target, draft = (
        saved("llama", folder / name, TEMPLATE, **wide) for name in ("target", "draft")
    )
    fitted(target, draft)
    engine = ProcessEngine(log=folder / "engine.log")
    choice = PairChoice(str(target), str(draft), context=512, learn=False)
    with pytest.MonkeyPatch.context() as patch:  # unknown to the plans of other tests
        patch.setenv("MACSPEC_HOME", str(folder))
        assert not hasattr(engine.load(choice).result(120), "kind")
    try:
        with serving(engine, Settings(MODEL)) as it, openai_client(it) as made:
            yield made
    finally:
        engine.close()


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.1, "seed": 7}])
def test_a_model_calls_a_tool_and_goes_on_with_its_answer(
    client: OpenAI, sampling: dict[str, Any]
) -> None:
    drafting = {"extra_body": {"macspec": {"method": "draft", "depth": 3}}}
    off = {"extra_body": {"macspec": {"method": "off"}}}

    def create(messages: Any, **more: Any) -> Any:
        asked = {"model": "macspec", "tools": TOOLS, "max_tokens": 80, **sampling, **more}
        return client.chat.completions.create(messages=messages, **asked)

    whole = create(QUESTION, **drafting)
    (choice,) = whole.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look. "
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Ulm"},
    )
    assert whole.model_extra["macspec"]["drafted"] > 0
    plain = create(QUESTION, **off).choices[0].message
    assert [it.function for it in plain.tool_calls] == [call.function]
    assert plain.content == "I look. "

    deltas = [it.choices[0] for it in create(QUESTION, stream=True, **drafting)]
    assert "".join(it.delta.content or "" for it in deltas) == "I look. "
    calls = [made for it in deltas for made in it.delta.tool_calls or []]
    assert [it.function.model_dump() for it in calls] == [call.function.model_dump()]
    assert deltas[-1].finish_reason == "tool_calls"

    answer = {"role": "tool", "tool_call_id": call.id, "content": "dry"}
    messages = [*QUESTION, choice.message.model_dump(exclude_none=True), answer]
    texts = {create(messages, **how).choices[0].message.content for how in (drafting, off)}
    assert {text.strip() for text in texts} == {ANSWER.strip()}
