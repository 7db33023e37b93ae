"""The chat template: one token list, what it does with system turns and reasoning, refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from modelfolders import edited

from macspec.errors import BadOptionError
from macspec.models import Template, load_pair
from macspec.prompt import Prompting

USER = {"role": "user", "content": "Hello there"}
SYSTEM = {"role": "system", "content": "Answer in French."}
ANSWER = {"role": "assistant", "content": "Bonjour"}

TURNS = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<|end|>{% endfor %}"
OPENING = "{% if add_generation_prompt %}[assistant]{% endif %}"
HONOURS = TURNS + OPENING
IGNORES = "{% for m in messages if m['role'] != 'system' %}" + TURNS.split("%}", 1)[1] + OPENING
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
ALTERNATES = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}"
)
EFFORT = "{{ reasoning_effort | default('medium') }}"
SWITCH = "{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}"
OTHER_SWITCH = "{% if thinking %}<yes>{% endif %}"
STRIPS = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'].split('</think>')[-1] }}{% endfor %}"
)


@pytest.fixture(scope="module")
def built_in():
    return load_pair()


@pytest.fixture
def with_template(copy):
    """A pair whose target has a template of the test's own, or none."""

    def make(template: str | None):
        folder = copy("draft")
        with edited(folder / "tokenizer_config.json") as config:
            del config["chat_template"]
            if template is not None:
                config["chat_template"] = template
        return load_pair(str(folder))

    return make


def text(template: Template, messages) -> str:
    return template._tokenizer.decode(template.tokens(messages))


def test_one_token_list_with_the_opening_of_the_answer(built_in):
    template = Template(built_in)
    tokens = template.tokens([USER, ANSWER, USER])
    assert all(type(token) is int for token in tokens)
    assert text(template, [USER, ANSWER, USER]) == (
        "<|bos|><|user|>Hello there<|end|><|assistant|>Bonjour<|end|><|user|>Hello there<|end|>"
        "<|assistant|>"
    )


def test_a_longer_history_begins_with_the_shorter_one(built_in):
    template = Template(built_in)
    first, second = template.tokens([USER]), template.tokens([USER, ANSWER, USER])
    assert second[: len(first)] == first


@pytest.mark.parametrize("rest", [IGNORES, REFUSES + HONOURS, REFUSES + ALTERNATES + HONOURS])
def test_without_a_system_role_the_prompt_comes_first(with_template, rest):
    template = Template(with_template(rest))
    both = {"role": "user", "content": "Answer in French.\n\nHello there"}
    assert template.tokens([SYSTEM, USER]) == template.tokens([both])
    assert template.tokens([SYSTEM, USER, ANSWER, USER]) == template.tokens([both, ANSWER, USER])
    assert "has no system role" in template.system_notice
    assert template.notices_for([SYSTEM, USER]) == (template.system_notice,)
    assert template.notices_for([USER]) == ()
    assert text(template, [USER]).startswith("[user]Hello there")


def test_a_template_that_honours_system_turns_is_not(built_in, with_template):
    assert Template(built_in).notices_for([SYSTEM, USER]) == ()
    template = Template(with_template(HONOURS))
    assert template.notices_for([SYSTEM, USER]) == ()
    assert text(template, [SYSTEM, USER]).startswith("[system]Answer in French.")


def test_a_conversation_that_the_template_refuses(with_template):
    template = Template(with_template(ALTERNATES + HONOURS))
    template.tokens([USER, ANSWER, USER])
    with pytest.raises(BadOptionError, match=r"rejects this conversation \(Roles must alternate\)"):
        template.tokens([USER, USER])


@pytest.mark.parametrize("broken", ["{% if %}", "{{ nothing.at.all }}", "{{ 1 / 0 }}"])
def test_a_broken_template_is_one_line(with_template, broken):
    template = Template(with_template(broken), think=True)
    with pytest.raises(BadOptionError, match=r"rejects this conversation|is damaged") as caught:
        template.tokens([USER])
    assert "\n" not in str(caught.value)


def test_without_a_template_raw_is_the_way(with_template):
    template = Template(with_template(None), think=True)
    with pytest.raises(BadOptionError, match="has no chat template: add --raw"):
        template.tokens([USER])
    assert template.raw("Hello there")


@pytest.mark.parametrize("switch", [SWITCH, OTHER_SWITCH])
def test_the_switch_for_reasoning(with_template, switch):
    pair = with_template(HONOURS + switch)
    on, off = Template(pair, think=True), Template(pair, think=False)
    assert on.notices_for([SYSTEM, USER]) == off.notices_for([SYSTEM, USER]) == ()
    assert Prompting(pair).thinks
    assert on.tokens([USER]) != off.tokens([USER])
    assert ("<no>" in text(off, [USER])) == (switch is SWITCH)
    assert ("<yes>" in text(on, [USER])) == (switch is OTHER_SWITCH)


@pytest.mark.parametrize(
    ("name", "switch"), [("reasoning_effort", ""), ("thinking_effort", SWITCH)]
)
def test_the_effort_of_reasoning(with_template, name, switch):
    pair = with_template(HONOURS + EFFORT.replace("reasoning_effort", name) + switch)
    assert Prompting(pair).efforts == ("low", "medium", "high")
    for effort in ("low", "medium", "high"):
        template = Template(pair, think=effort)
        assert text(template, [USER]).endswith(f"[assistant]{effort}")
        assert template.notices_for([USER]) == ()
    off = Template(pair, think=False)
    assert ("the least is low" in (off.think_notice or "")) == (not switch)
    assert Template(pair, think=True).think_notice is None
    assert text(Template(pair), [USER]).startswith("[user]Hello there<|end|>[assistant]medium")


CHECKED = (
    "{% if reasoning_effort is defined and reasoning_effort not in ['none', 'high'] %}"
    "{{ raise_exception('none or high') }}{% endif %}" + EFFORT
)


def test_an_effort_of_none_is_a_switch(with_template):
    pair = with_template(HONOURS + CHECKED)
    prompting = Prompting(pair)
    assert (prompting.thinks, prompting.efforts) == (True, ("high",))
    for think, shown in ((True, "high"), (False, "none"), ("high", "high"), (None, "medium")):
        template = Template(pair, think=think)
        assert text(template, [USER]).endswith(f"[assistant]{shown}")
        assert template.think_notice is None
    low = Template(pair, think="low")
    assert text(low, [USER]).endswith("[assistant]high")
    assert "does not know low effort: reasoning is on" in low.think_notice


def test_an_effort_where_there_is_only_a_switch(with_template, built_in):
    template = Template(with_template(HONOURS + OTHER_SWITCH), think="high")
    assert "does not know high effort: reasoning is on" in template.think_notice
    assert "<yes>" in text(template, [USER])
    assert "no switch for reasoning" in Template(built_in, think="low").think_notice


def test_a_switch_that_is_not_there_is_named(built_in):
    for think in (True, False):
        template = Template(built_in, think=think)
        assert "no switch for reasoning" in template.think_notice
        assert template.thinking == {}
        assert template.notices_for([USER]) == (template.think_notice,)
        assert template.tokens([USER]) == Template(built_in).tokens([USER])


def test_by_default_mlx_lms_choice_stands(with_template):
    pair = with_template(HONOURS + SWITCH)
    expected = pair.target.tokenizer.apply_chat_template([USER], add_generation_prompt=True)
    assert Template(pair).tokens([USER]) == expected


def test_old_reasoning_is_stripped_as_the_template_does_it(with_template):
    template = Template(with_template(STRIPS))
    answer = {"role": "assistant", "content": "<think>hmm</think>Bonjour"}
    assert text(template, [USER, answer, USER]) == "[user]Hello there[assistant]Bonjour" + (
        "[user]Hello there"
    )


def test_raw_adds_what_the_tokenizer_adds(built_in, copy):
    template = Template(built_in)
    assert template.raw("Hello <|end|>") == built_in.target.tokenizer.encode("Hello <|end|>")
    folder = copy("draft")
    with edited(folder / "tokenizer.json") as content:
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|bos|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}},
        }
    begun = Template(load_pair(str(folder))).raw("Hello")
    assert begun == [0, *template.raw("Hello")]


@pytest.mark.parametrize("bad", ["\udcff", "fine so far \ud83d and no more"])
def test_half_a_character_is_refused(built_in, bad):
    template = Template(built_in)
    with pytest.raises(BadOptionError, match="not valid Unicode"):
        template.raw(bad)
    with pytest.raises(BadOptionError, match="not valid Unicode"):
        template.tokens([{"role": "user", "content": bad}])


def test_a_token_without_an_embedding_is_refused(copy):
    folder = copy("draft")
    with edited(folder / "tokenizer.json") as content:
        content["added_tokens"].append({**content["added_tokens"][0], "id": 4096, "content": "<x>"})
    template = Template(load_pair(str(folder)))
    assert template.raw("an x")
    with pytest.raises(
        BadOptionError, match=r"contains '<x>', a token that .* has no embedding for"
    ):
        template.raw("an <x>")


class Thinking:
    """The built-in tokenizer, with tags that it writes with common tokens."""

    think_start, think_end = "<think>", "</think>"

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.think_start_tokens = tuple(tokenizer.encode("<think>", add_special_tokens=False))
        self.think_end_tokens = tuple(tokenizer.encode("</think>", add_special_tokens=False))

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


OPENED = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
REPLY = {"role": "assistant", "content": "It is four.", "reasoning": "Two and two.\n"}


@pytest.mark.parametrize(
    ("opening", "reply", "expected"),
    [
        ("[a]", {"content": "It is", "reasoning": ""}, "[user]Hi[a]It is"),
        ("[a]", {"content": "It is"}, "[user]Hi[a]It is"),
        ("[a]", {"content": "", "reasoning": "Two"}, "[user]Hi[a]<think>\nTwo"),
        ("[a]", REPLY, "[user]Hi[a]<think>\nTwo and two.\n</think>\n\nIt is four."),
        ("[a]<think>\n", {"content": "", "reasoning": "Two"}, "[user]Hi[a]<think>\nTwo"),
        ("[a]<think>\n", REPLY, "[user]Hi[a]<think>\nTwo and two.\n</think>\n\nIt is four."),
        ("[a]<think>\n", {"content": "Four"}, "[user]Hi[a]<think>\n\n</think>\n\nFour"),
        ("[a]", {"content": "", "reasoning": ""}, "[user]Hi[a]"),
    ],
)
def test_a_reply_that_goes_on_begins_as_it_was(with_template, opening, reply, expected):
    pair = with_template(OPENED + "{% if add_generation_prompt %}" + opening + "{% endif %}")
    pair = replace(pair, target=replace(pair.target, tokenizer=Thinking(pair.target.tokenizer)))
    template = Template(pair)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", **reply}]
    tokens = template.resumed(messages)
    assert template._tokenizer.decode(tokens) == expected
    prompting = Prompting(pair)
    prompt = prompting.chat(messages, 512, 100, resume=True)
    assert prompt.tokens == tokens
    begun = not reply["content"] and (reply.get("reasoning") or opening.endswith("<think>\n"))
    assert prompt.part == ("reasoning" if begun else "answer")


def test_without_tags_reasoning_is_left_out_of_a_reply_that_goes_on(built_in):
    template = Template(built_in)
    tokens = template.resumed([USER, REPLY])
    assert template._tokenizer.decode(tokens).endswith("<|assistant|>It is four.")


TOOLS = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}"
    "{% endfor %}{% endfor %}" + OPENING
)


def test_tools_their_calls_and_answers_reach_the_template(with_template):
    template = Template(with_template(TOOLS))
    calls = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}]
    turns = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": json.dumps(calls)},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
    ]
    tokens = template.tokens(turns, [{"type": "function", "function": {"name": "weather"}}])
    expected = "<weather>[user]Hello there[assistant]<tool_call>Ulm[tool]rain[assistant]"
    assert template._tokenizer.decode(tokens) == expected
