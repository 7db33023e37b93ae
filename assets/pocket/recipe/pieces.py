"""The tokenizer: a SentencePiece model, and the same as the files that mlx-lm reads."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import sentencepiece as spm

BOS, SYSTEM, USER, ASSISTANT, END = "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = (BOS, SYSTEM, USER, ASSISTANT, END)
UNK_ID, BOS_ID, SYSTEM_ID, USER_ID, ASSISTANT_ID, END_ID = range(6)
SPACE = "\u2581"
TEMPLATE = (
    "<|bos|>{% for m in messages %}{% if m['role'] in ('system', 'user', 'assistant') %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train(texts: Iterable[str], size: int) -> bytes:
    """A SentencePiece model with byte fallback that leaves every text as it is."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        character_coverage=0.9999,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=-1,
        pad_id=-1,
        bos_piece=BOS,
        user_defined_symbols=list(SPECIAL[1:]),
        num_threads=1,
        max_sentence_length=20000,
        minloglevel=2,
    )
    return model.getvalue()


class Pieces:
    """Text to ids with the SentencePiece model itself."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.processor = spm.SentencePieceProcessor(model_proto=model)

    @property
    def size(self) -> int:
        return int(self.processor.get_piece_size())

    def text(self, text: str) -> list[int]:
        return list(self.processor.encode(text))

    def chat(self, messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        """Ids of a chat as the template writes it, and for each what it is.

        Returns:
            Ids; and 2 for what an assistant says and its end, 1 for the turns of others, 0 for
            marks that the template writes.
        """
        ids, kinds = [BOS_ID], [0]
        for message in messages:
            role = message["role"]
            said = [*self.text(message["content"]), END_ID]
            ids += [{"system": SYSTEM_ID, "user": USER_ID, "assistant": ASSISTANT_ID}[role], *said]
            kinds += [0] + [2 if role == "assistant" else 1] * len(said)
        return ids, kinds

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids up to where the assistant's turn begins."""
        return [*self.chat(messages)[0], ASSISTANT_ID]


def converted(model: bytes) -> str:
    """``tokenizer.json`` for a SentencePiece model: the same ids for every text."""
    processor = spm.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(n) for n in range(processor.get_piece_size())]
    vocabulary = {piece: n for n, piece in enumerate(pieces)}
    normal = [
        piece
        for n, piece in enumerate(pieces)
        if not (processor.is_control(n) or processor.is_unknown(n) or processor.is_byte(n))
        and piece not in SPECIAL
    ]
    known = set(normal)
    merges = []
    for piece in normal:
        pairs = [
            (vocabulary[piece[:cut]], vocabulary[piece[cut:]], piece[:cut], piece[cut:])
            for cut in range(1, len(piece))
            if piece[:cut] in known and piece[cut:] in known
        ]
        merges += [
            (vocabulary[piece], first, second, left, right) for first, second, left, right in pairs
        ]
    merges.sort(key=lambda merge: merge[:3])
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": vocabulary[piece],
                    "content": piece,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
                for piece in ("<unk>", *SPECIAL)
            ],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                ],
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": "<unk>",
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": vocabulary,
                "merges": [f"{left} {right}" for *_, left, right in merges],
            },
        },
        ensure_ascii=False,
        indent=0,
    )


def write(folder: Path, model: bytes, context: int) -> None:
    """The tokenizer's files of a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(converted(model) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "unk_token": "<unk>",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
