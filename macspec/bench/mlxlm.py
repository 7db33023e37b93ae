"""The arms of mlx-lm: its plain loop, and its own speculative decoding on the same pair.

Its rule, ``speculative_generate_step`` in ``generate.py`` of mlx-lm 0.32: draft model and target
each sample with one sampler, drafted tokens are accepted while they equal the target's samples,
and the target's sample replaces the first that does not. All emitted tokens are the target's own
samples, so the text has the target's distribution; but at temperatures above 0 two independent
samples rarely agree: with probability sum of p(x) q(x), where rejection sampling accepts
sum of min(p(x), q(x)).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import mlx.core as mx
from mlx_lm import stream_generate
from mlx_lm.sample_utils import make_sampler

from ..errors import BadOptionError
from ..models import Pair
from ..models.template import Template
from ..sampling import Sampling
from ..stats import ReplyCounter
from .questions import Arm, Question, prompt_ids, shortened
from .sample import ReplyRecorder, Written, pooled_speed

OWN_DEPTH = 2
"""mlx-lm's default ``num_draft_tokens``."""

DEPTHS = (1, 2, 3, 4, 6, 8)
"""Depths among which the fastest is chosen."""

TRIED = 4
"""Questions on which each of them is tried."""


class MlxLmArm(Arm):
    """``mlx_lm.stream_generate``, with or without the draft model.

    Args:
        depth: its ``num_draft_tokens``; 0: without the draft model; None: for each temperature
            the fastest of ``DEPTHS`` on some of the questions, found when it is prepared.
        kv_bits: quantize the keys and values to this many bits, from the first token on.

    Raises:
        BadOptionError: the pair has no draft model, and one is needed.
    """

    def __init__(
        self, name: str, pair: Pair, *, depth: int | None = 0, kv_bits: int | None = None
    ) -> None:
        if depth != 0 and pair.draft is None:
            raise BadOptionError(f"{name} needs a draft model: {pair.draft_off or 'add --draft'}")
        self.name = name
        self._pair, self._depth, self._kv_bits = pair, depth, kv_bits
        self._template = Template(pair)
        self._best: dict[float, int] = {}
        self._found: dict[str, dict[str, float]] = {}
        endless = copy.copy(pair.target.tokenizer)
        endless.eos_token_ids = set()
        ending = copy.copy(pair.target.tokenizer)
        ending.eos_token_ids = set(pair.stop_ids)
        self._tokenizers = {True: ending, False: endless}

    def prepare(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        super().prepare(questions, sampling, ends)
        if self._depth is None:
            self._choose(questions, sampling, ends)

    def write(self, question: Question, sampling: Sampling, ends: bool) -> Written:
        best = self._best.get(sampling.temperature, OWN_DEPTH)
        depth = best if self._depth is None else self._depth
        mx.random.seed(sampling.seed or 0)
        start = perf_counter()
        prompt = prompt_ids(question.task, self._template)
        recorder = ReplyRecorder(start, ReplyCounter(prompt_tokens=len(prompt)))
        ids: list[int] = []
        stream: list[tuple[float, bool]] = []
        text, reason = "", "length"
        for response in self._responses(question, prompt, depth, sampling, ends):
            stream.append((perf_counter(), bool(response.from_draft)))
            ids.append(int(response.token))
            text += response.text
            if response.finish_reason == "stop":
                reason = "end"
        count_passes(recorder, stream, depth, question.max_tokens)
        return recorder.written(ids, text, reason)

    def describe(self) -> Mapping[str, Any]:
        best = {f"{temperature:g}": depth for temperature, depth in self._best.items()}
        return {
            "program": "mlx-lm",
            "function": "stream_generate",
            "num_draft_tokens": best if self._depth is None else self._depth or None,
            "tried_tokens_per_s": self._found or None,
            "kv_bits": self._kv_bits,
        }

    def _responses(
        self, question: Question, prompt: Sequence[int], depth: int, sampling: Sampling, ends: bool
    ) -> Iterator[Any]:
        module: Any = self._pair.target.module
        if question.forced is not None:
            module = ForcedTarget(module, len(prompt), question.forced)
        settings: dict[str, Any] = {
            "max_tokens": question.max_tokens,
            "sampler": make_sampler(sampling.temperature),
        }
        if self._kv_bits is not None:
            settings.update(kv_bits=self._kv_bits, quantized_kv_start=0)
        if depth:
            assert self._pair.draft is not None
            settings.update(draft_model=self._pair.draft.module, num_draft_tokens=depth)
        return iter(
            stream_generate(module, self._tokenizers[ends], mx.array(list(prompt)), **settings)
        )

    def _choose(self, questions: Sequence[Question], sampling: Sampling, ends: bool) -> None:
        """Find the fastest depth: seconds of decode over all tokens, of a few questions."""
        spread = questions[:: max(len(questions) // TRIED, 1)][:TRIED]
        tried = [shortened(question, 48) for question in spread]
        found = {}
        for depth in DEPTHS:
            self._best[sampling.temperature] = depth
            replies = [
                self.write(question, replace(sampling, seed=number), ends)
                for number, question in enumerate(tried)
            ]
            found[depth] = pooled_speed(replies)
        self._best[sampling.temperature] = max(found, key=found.__getitem__)
        self._found[f"{sampling.temperature:g}"] = {
            str(depth): round(speed, 2) for depth, speed in found.items()
        }


def count_passes(
    recorder: ReplyRecorder, stream: Sequence[tuple[float, bool]], depth: int, limit: int
) -> None:
    """Count the passes in a stream of tokens, each with its time and whether it was drafted.

    A pass ends with the target's own token. All of its tokens are known when the first one comes.
    """
    begin = 0
    for end, (_, drafted) in enumerate(stream, 1):
        if drafted and end < len(stream):
            continue
        accepted = end - begin - (not drafted)
        # Of a pass that the reply's end cut, only what was emitted was judged.
        judged = accepted if drafted else min(depth, limit - begin)
        drafter = "draft" if judged else None
        recorder.count(stream[begin][0], end - begin, drafter, judged, accepted)
        begin = end


class ForcedTarget:
    """A target that chooses a recorded answer, for mlx-lm's own loops.

    It is called like the model, and its logits have the answer's token so far above all others
    that it is drawn at any temperature. What it costs beside the pass is one addition over the
    logits.

    Args:
        module: the target, an mlx-lm model.
        prompt: tokens of the prompt.
        answer: the ids to be drawn after it; past their end the model is as it is.
    """

    def __init__(self, module: Any, prompt: int, answer: Sequence[int]) -> None:
        self._module = module
        # The row of the prompt's last token is the first to be judged.
        self._first = prompt - 1
        self._answer = mx.array([*answer], mx.uint32)
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __call__(self, tokens: mx.array, cache: Any = None, **options: Any) -> mx.array:
        """Logits [1, rows, V] of tokens [1, rows], which follow what the cache holds."""
        offsets = (getattr(layer, "offset", None) for layer in cache)
        # Tokens that the cache holds; of one that does not tell, all that were read so far.
        before = next((it for it in offsets if isinstance(it, int)), self._read)
        self._read = before + tokens.shape[1]
        logits: mx.array = self._module(tokens, cache=cache, **options)
        start = before - self._first
        skipped = max(-start, 0)
        chosen = self._answer[max(start, 0) : max(start + tokens.shape[1], 0)]
        if chosen.shape[0] == 0:
            return logits
        sure = mx.arange(logits.shape[-1]) == chosen[:, None]
        end = skipped + chosen.shape[0]
        rows = logits[:, skipped:end] + mx.where(sure, 1e9, 0).astype(logits.dtype)
        return mx.concatenate([logits[:, :skipped], rows, logits[:, end:]], axis=1)
