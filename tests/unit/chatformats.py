"""What current families make of a conversation, cut down to the facts of their formats.

Each template has the role markers, the guards that raise, the fields that it reads, what it drops
of earlier replies, and its switch for reasoning; tools, dates and system texts are left out. The
special tokens are added to the built-in tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from mlx_lm.tokenizer_utils import SPMStreamingDetokenizer, TokenizerWrapper
from transformers import PreTrainedTokenizerFast

from macspec.assets import pocket
from macspec.models import Pair

_ALTERNATE = """
{%- set ns = namespace(last='assistant') -%}
{%- for m in messages if m.role != 'system' -%}
  {%- if m.role == ns.last -%}
    {{- raise_exception('roles must alternate user and assistant') -}}
  {%- endif -%}
  {%- set ns.last = m.role -%}
{%- endfor -%}
"""

_LAST_USER = """
{%- set ns = namespace(last=-1) -%}
{%- for m in messages if m.role == 'user' -%}{%- set ns.last = ns.last + 1 -%}{%- endfor -%}
{%- set users = namespace(seen=-1) -%}
"""

GPT_OSS = """
{%- set effort = reasoning_effort if reasoning_effort is defined else 'medium' -%}
<|start|>system<|message|>Reasoning: {{ effort }}<|end|>
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {{- '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '<|end|>' -}}
  {%- elif m.role == 'user' -%}
    {{- '<|start|>user<|message|>' + m.content + '<|end|>' -}}
  {%- else -%}
    {%- for text in (m.content, m.thinking or '') -%}
      {%- if '<|channel|>analysis<|message|>' in text or '<|channel|>final<|message|>' in text -%}
        {{- raise_exception('pass analysis as thinking, and final as content') -}}
      {%- endif -%}
    {%- endfor -%}
    {{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

QWEN = """
{%- if messages[-1].role == 'system' -%}{{- raise_exception('No user query found') -}}{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'system' and not loop.first -%}
    {{- raise_exception('System message must be at the beginning') -}}
  {%- endif -%}
  {%- set content = m.content.split('</think>')[-1].lstrip('\\n') -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.role == 'assistant' and loop.last and m.reasoning_content is string -%}
    {{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' -}}
  {%- endif -%}
  {{- content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n<think>\\n' -}}
  {%- if enable_thinking is defined and not enable_thinking -%}
    {{- '\\n</think>\\n\\n' -}}
  {%- endif -%}
{%- endif -%}
"""

GLM = """[gMASK]<sop>
{%- for m in messages -%}
  {%- if m.role == 'assistant' -%}
    {{- '<|assistant|></think>' + m.content.strip() -}}
  {%- else -%}
    {{- '<|' + m.role + '|>' + m.content -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>' -}}
  {{- '</think>' if enable_thinking is defined and not enable_thinking else '<think>' -}}
{%- endif -%}
"""

MISTRAL = (
    _ALTERNATE
    + """
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' -}}
  {%- elif m.role == 'user' -%}
    {{- '[INST]' + m.content + '[/INST]' -}}
  {%- elif m.content is string -%}
    {%- if not m.content -%}{{- raise_exception('an assistant message is empty') -}}{%- endif -%}
    {{- m.content + '</s>' -}}
  {%- else -%}
    {%- for block in m.content -%}
      {%- if block.type == 'thinking' -%}
        {{- '[THINK]' + block.thinking + '[/THINK]' -}}
      {%- elif block.type == 'text' -%}
        {{- block.text -}}
      {%- else -%}
        {{- raise_exception('only text and thinking') -}}
      {%- endif -%}
    {%- endfor -%}
    {{- '</s>' -}}
  {%- endif -%}
{%- endfor -%}
"""
)

GEMMA = """
{%- if enable_thinking or messages[0].role == 'system' -%}
  {{- '<|turn>system\\n' + ('<|think|>' if enable_thinking else '') -}}
  {{- (messages[0].content | trim if messages[0].role == 'system' else '') + '<turn|>\\n' -}}
{%- endif -%}
{%- for m in messages if m.role != 'system' -%}
  {{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' -}}
  {%- for part in m.content.split('<channel|>') -%}
    {{- part.split('<|channel>')[0] if m.role == 'assistant' else part -}}
  {%- endfor -%}
  {{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|turn>model\\n' + ('' if enable_thinking else '<|channel>thought\\n<channel|>') -}}
{%- endif -%}
"""

LFM = (
    _LAST_USER
    + """
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{%- set users.seen = users.seen + 1 -%}{%- endif -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- set later = m.role == 'assistant' and users.seen >= ns.last and loop.last -%}
  {%- if later and m.thinking is defined -%}{{- '<think>' + m.thinking + '</think>' -}}{%- endif -%}
  {{- m.content.split('</think>')[-1] if m.role == 'assistant' else m.content -}}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
)

KIMI = """
{%- if messages[0].role != 'system' -%}
  <|im_system|>system<|im_middle|>Be Kimi.<|im_end|>
{%- endif -%}
{%- for m in messages -%}
  {{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' -}}
  {{- ('<think></think>' if KEEPS and m.role == 'assistant' else '') + m.content -}}
  {{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}
"""

GEMMA_2 = (
    """
{%- if messages[0].role == 'system' -%}
  {{- raise_exception('System role not supported') -}}
{%- endif -%}
"""
    + _ALTERNATE
    + """
{%- for m in messages -%}
  {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' -}}
  {{- m.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""
)


@dataclass(frozen=True)
class Family:
    """A model's chat format; replies are as the model writes them after its prompt."""

    tokens: tuple[str, ...]
    template: str
    end: str
    reasons: str = ""
    """A reply with the reasoning {r} and the answer {a}; empty: it has none."""
    answers: str = "{a}"
    """A reply without reasoning."""
    switch: bool = True
    """Whether the template can turn reasoning off."""
    keeps: bool = False
    """Whether earlier reasoning stays in the prompt."""


FAMILIES = {
    "gpt-oss": Family(
        (
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|return|>", "<|call|>"),
        ),
        GPT_OSS,
        "<|return|>",
        "<|channel|>analysis<|message|>{r}<|end|><|start|>assistant<|channel|>final<|message|>{a}",
        "<|channel|>final<|message|>{a}",
        switch=False,
    ),
    "Qwen3.5": Family(
        ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        QWEN,
        "<|im_end|>",
        "{r}\n</think>\n\n{a}",
    ),
    "GLM-4.7": Family(
        ("[gMASK]", "<sop>", "<|system|>", "<think>", "</think>"),
        GLM,
        "<|user|>",
        "{r}</think>{a}",
    ),
    "Ministral 3": Family(
        (
            *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            *("[THINK]", "[/THINK]", "</s>"),
        ),
        MISTRAL,
        "</s>",
        "[THINK]{r}[/THINK]{a}",
        switch=False,
        keeps=True,
    ),
    "Gemma 4": Family(
        ("<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>"),
        GEMMA,
        "<turn|>",
        "<|channel>thought\n{r}<channel|>{a}",
    ),
    "LFM2.5": Family(
        ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        LFM,
        "<|im_end|>",
        "<think>{r}</think>{a}",
        switch=False,
    ),
    "Kimi K2": Family(
        (
            *("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
            *("<think>", "</think>"),
        ),
        KIMI.replace("KEEPS", "true"),
        "<|im_end|>",
        "<think>{r}</think>{a}",
        switch=False,
    ),
    "Kimi-VL": Family(
        ("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
        KIMI.replace("KEEPS", "false"),
        "<|im_end|>",
        "◁think▷{r}◁/think▷{a}",
        switch=False,
    ),
    "Gemma 2": Family(("<start_of_turn>", "<end_of_turn>"), GEMMA_2, "<end_of_turn>", switch=False),
}


@cache
def tokenizer_of(name: str) -> TokenizerWrapper:
    family = FAMILIES[name]
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(pocket().draft / "tokenizer.json"))
    known = tokenizer.get_vocab()
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [it for it in family.tokens if it not in known]}
    )
    tokenizer.chat_template = family.template
    end = tokenizer.convert_tokens_to_ids(family.end)
    detokenizer = cast(
        Callable[[Any], Any], lambda it: SPMStreamingDetokenizer(it, trim_space=False)
    )
    return TokenizerWrapper(tokenizer, detokenizer, eos_token_ids=[end])


def pair_of(name: str, **fields: Any) -> Pair:
    """As much of a pair as templates and prompts need."""
    tokenizer = tokenizer_of(name)
    target = SimpleNamespace(name=name, tokenizer=tokenizer, width=len(tokenizer))
    return cast(Pair, SimpleNamespace(target=target, **fields))
