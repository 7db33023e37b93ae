"""Model folders that mean harm or were damaged, each an edit of a copy of a sound one."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hostile import NUMBERS, TEXTS
from modelfolders import edited

Edit = Callable[[Path], None]

TEMPLATES = {
    "doubles a string": "{% set n = namespace(s='xy') %}{% for i in range(60) %}"
    "{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "doubles by a block": "{% set s %}{% for i in range(9999) %}{{ 'x' * 99999 }}{% endfor %}"
    "{% endset %}{{ s }}",
    "multiplies": "{{ 'x' * 10 ** 11 }}",
    "doubles a list": "{% set n = namespace(l=[1]) %}{% for i in range(60) %}"
    "{% set n.l = n.l + n.l %}{% endfor %}{{ n.l }}",
    "takes a power": "{{ 9 ** 9 ** 9 }}",
    "pads": "{{ '%1000000000000d' | format(1) }}",
    "pads with braces": "{{ '{:>100000000000}'.format(1) }}",
    "centres": "{{ 'x' | center(100000000000) }}",
    "indents": "{{ ('x\n' * 10000) | indent(10000000) }}",
    "makes JSON": "{{ ['x'] | tojson(indent=100000000000) }}",
    "joins": "{{ (['x' * 99999] * 99999) | join('y' * 99999) }}",
    "replaces": "{{ ('a' * 999999) | replace('a', 'b' * 999999) }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "wraps": "{{ ('x' * 9999999) | wordwrap(1) }}",
    "calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "reaches out": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "reads a file": "{% include '/etc/passwd' %}",
    "raises": "{{ raise_exception('\x1b[2J' ~ 'x' * 9999) }}",
    "divides by zero": "{{ 1 / 0 }}",
    "is cut off": "{% if true %}{% for",
    "has no such filter": "{{ 1 | nothing }}",
    "has no such tag": "{% nothing %}",
    "says nothing": "",
    "says a space": " ",
    "says too much": "{{ 'x' * 9000000 }}",
    "is deep": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "is wide": "{{ " + " + ".join(["1"] * 5000) + " }}",
    "is binary": "\x00\x01\x02",
    "has unknown tokens": "<|nothing|>{{ messages[0].content }}",
    "calls in turns": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
    "{{ a() }}",
    "calls twice as often": "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}"
    "{% endmacro %}{{ a(60) }}",
    "holds itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "extends itself": "{% extends 'chat_template.jinja' %}",
    "counts far": "{{ range(10 ** 10) | list | length }}",
    "sorts": "{{ (range(99999) | list * 1000) | sort | length }}",
    "fills up": "{{ messages | batch(10 ** 9, 'x') | list }}",
    "parses a number": "{{ ('9' * 4000000) | int }}",
    "tells the time at length": "{{ strftime_now('%Y' * 1000000) }}",
    "is a namespace of itself": "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
}
"""Chat templates by what each does."""

BLOWN = {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 300}

RULES: Mapping[str, list[Any]] = {
    "normalizer": [
        {"type": "Sequence", "normalizers": [BLOWN] * 4},
        {"type": "Replace", "pattern": {"Regex": "(a"}, "content": "b"},
        {"type": "Replace", "pattern": {"String": ""}, "content": "b"},
        {"type": "Replace", "pattern": {"Regex": "[\\s\\S]"}, "content": ""},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Prepend", "prepend": "x" * 1_000_000},
    ],
    "pre_tokenizer": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in ("(?:a+)+$", "(.*)*(?=x)", "(?<=a*)b", "\\p{Nothing}", "(((((.*)*)*)*)*)*y")
    ],
    "decoder": [
        {"type": "Sequence", "decoders": [{**BLOWN, "pattern": {"String": "a"}}] * 4},
        {"type": "Strip", "content": "x", "start": 2**40, "stop": 2**40},
        {"type": "Nothing"},
    ],
    "post_processor": [
        {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}] * 9,
            "pair": [],
            "special_tokens": {},
        },
        {"type": "RobertaProcessing", "sep": ["</s>", 2**31], "cls": ["<s>", 0]},
    ],
    "added_tokens": [
        [{"id": 2**31, "content": "x", "special": True}],
        [{"id": -1, "content": ""}],
        [{"id": 4096 + n, "content": "y" * 100_000, "special": True} for n in range(20)],
    ],
    "model": [
        {"type": "BPE", "vocab": {}, "merges": []},
        {"type": "BPE", "vocab": {"a": 2**31}, "merges": [["a", "b"]]},
        {"type": "Unigram", "vocab": [], "unk_id": 7},
        {"type": "WordPiece", "vocab": {"a": 0}},
    ],
}
"""Parts of ``tokenizer.json``."""

HEADERS: Mapping[str, bytes] = {
    "an offset of infinity": b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}',
    "an offset below zero": b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
    "an offset that is text": b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": ["x", 4]}}',
    "no offsets": b'{"a": {"dtype": "F32", "shape": [1]}}',
    "a long shape": b'{"a": {"dtype": "F32", "shape": [%s1], "data_offsets": [0, 4]}}'
    % (b"9999999999, " * 20_000),
    "a huge shape": b'{"a": {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 4]}}',
    "a shape below zero": b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    "an unknown type": b'{"a": {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]}}',
    "a type of its own": b'{"a": {"dtype": {}, "shape": [1], "data_offsets": [0, 4]}}',
    "the same bytes twice": b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
    b'"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    "a shape that is no number": b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}',
    "many dimensions": b'{"a": {"dtype": "F32", "shape": [%s1], "data_offsets": [0, 4]}}'
    % (b"1, " * 100_000),
    "metadata that is a list": b'{"__metadata__": [1]}',
    "a list": b"[]",
    "depth": b"[" * 100_000,
    "no JSON": b"\xff\xfe{",
    "nothing": b"",
    "a long name": b'{"%s": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'
    % (b"x" * 10_000_000),
}


def values() -> Iterator[Any]:
    yield from (None, True, "", "x", [], {}, [[]], {"a": {}}, "x" * 300_000)
    yield from NUMBERS
    yield TEXTS["clear screen"]


def entry(file: str, key: str, value: Any) -> Edit:
    def edit(folder: Path) -> None:
        with edited(folder / file) as content:
            content[key] = value

    return edit


def template(text: str) -> Edit:
    return lambda folder: _write(folder / "chat_template.jinja", text.encode())


def weights(header: bytes) -> Edit:
    data = struct.pack("<Q", len(header)) + header + bytes(4)
    return lambda folder: _write(folder / "model.safetensors", data)


def length_of_header(length: int) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])

    return edit


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


FILES: Mapping[str, Callable[[Path], None]] = {
    "a pipe": lambda path: _instead(path, os.mkfifo),
    "endless": lambda path: _instead(path, lambda it: it.symlink_to("/dev/zero")),
    "a link out": lambda path: _instead(path, lambda it: it.symlink_to("/etc/hostname")),
    "a link to itself": lambda path: _instead(path, lambda it: it.symlink_to(it)),
    "a link to nothing": lambda path: _instead(path, lambda it: it.symlink_to("nothing")),
    "a folder": lambda path: _instead(path, Path.mkdir),
    "missing": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: _write(path, b""),
    "cut short": lambda path: _write(path, path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: _write(path, bytes(range(256)) * 40),
    "zeros": lambda path: _write(path, bytes(4096)),
    "text": lambda path: _write(path, b'"' + b"x" * 1_000_000 + b'"'),
    "deep": lambda path: _write(path, b"[" * 200_000),
    "too large": lambda path: _instead(path, _sparse),
}
"""What may be in a file's place."""


CONFIGS: Mapping[str, Callable[[str], bytes]] = {
    "a mark in front": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "no number": lambda text: _with(text, '"rms_norm_eps": NaN, "rope_theta": Infinity'),
    "a key twice": lambda text: _with(text, '"num_hidden_layers": 1, "num_hidden_layers": "x"'),
    "5000 digits": lambda text: _with(text, f'"max_position_embeddings": {"9" * 5000}'),
    "a deep list": lambda text: _with(text, f'"a": {"[" * 50_000}{"]" * 50_000}'),
    "deep objects": lambda text: _with(text, '"a": ' + '{"a":' * 900 + "1" + "}" * 900),
    "half a pair": lambda text: _with(text, r'"model_type": "\ud800"'),
    "a module's name": lambda text: _with(text, '"model_type": "__init__"'),
    "many ends": lambda text: _with(text, f'"eos_token_id": {list(range(100_000))}'),
}
"""What may be odd about ``config.json``."""


def _with(text: str, entries: str) -> bytes:
    return f"{text.rstrip().removesuffix('}')}, {entries}}}".encode()


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(300 * 2**20)


def folders() -> Iterator[tuple[str, Edit]]:
    """Every folder, by what is wrong with it; the first is sound."""
    yield "nothing", lambda folder: None
    for does, text in TEMPLATES.items():
        yield f"a template that {does}", template(text)
    for part, rules in RULES.items():
        for number, rule in enumerate(rules):
            yield f"{part} {number}", entry("tokenizer.json", part, rule)
    for has, header in HEADERS.items():
        yield f"a header with {has}", weights(header)
    for has, odd in CONFIGS.items():
        yield (
            f"a configuration with {has}",
            lambda folder, odd=odd: _write(
                folder / "config.json", odd((folder / "config.json").read_text())
            ),
        )
    for link in ("additional_chat_templates", "x.json", "a\x1b[2J\nb.json"):
        yield f"a loop {link!a}", lambda folder, it=link: (folder / it).symlink_to(folder / it)
    for length in (0, 7, 2**20, 2**32, 2**63, 2**64 - 1):
        yield f"a header of {length}", length_of_header(length)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        for how, make in FILES.items():
            yield f"{file}: {how}", lambda folder, m=make, f=file: m(folder / f)
    for how, make in FILES.items():
        yield (
            f"generation_config.json: {how}",
            lambda folder, m=make: m(folder / "generation_config.json"),
        )
        yield f"a shard: {how}", lambda folder, m=make: _shard(folder, m)
    keys = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    keys += ("rope_theta", "eos_token_id", "quantization", "rope_scaling", "text_config")
    keys += ("num_labels", "max_position_embeddings", "id2label", "model_file", "layer_types")
    for number, key in enumerate(keys):
        for value in list(values())[number % 2 :: 2]:
            yield f"{key} = {ascii(value)[:30]}", entry("config.json", key, value)
    keys = ("tokenizer_class", "chat_template", "eos_token", "model_max_length", "bos_token")
    for number, key in enumerate(keys):
        for value in list(values())[number % 3 :: 3]:
            yield (
                f"tokenizer {key} = {ascii(value)[:30]}",
                entry("tokenizer_config.json", key, value),
            )


def _shard(folder: Path, make: Callable[[Path], None]) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes((folder / "model.safetensors").read_bytes())
    make(path)
