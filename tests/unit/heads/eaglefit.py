"""An EAGLE-3 head for the built-in target that knows one text by heart.

Its attention sees nothing but its own place, so its layer adds a linear map of the embedded token
and the row to the row. That map is fitted, in closed form, to turn each row (a mix of three of the
target's layers) into the next one, and its output head to make the target's logits of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from test_head_numbers import normed

from macspec.models import Pair
from macspec.models.cached import CachedModel

HEADS, SIZE = 5, 64
WIDTH = HEADS * SIZE
SHARP = 40.0
"""Of queries and keys: what makes them see only their own place."""

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "intermediate_size": 32,
    "rms_norm_eps": 1e-5,
    "attention_bias": True,
    "eagle_aux_hidden_state_layer_ids": [1, 3, 7],
}


def fitted(pair: Pair, tokens: Sequence[int]) -> dict[str, mx.array]:
    """The tensors of the head; its vocabulary is a third of the target's and the text's."""
    module: Any = pair.target.module
    model = CachedModel(module, pair.vocabulary)
    hidden = model.show(CONFIG["eagle_aux_hidden_state_layer_ids"])
    logits = np.array(model.logits(mx.array(list(tokens)), len(tokens)).astype(mx.float32))
    low, middle, high = (
        np.array(it.astype(mx.float32), np.float64) for it in hidden.rows(0, len(tokens))
    )
    rows = 3 * low - 3 * middle + high
    embedded = module.model.embed_tokens(mx.array(list(tokens)))[1:].astype(mx.float32)
    ones = np.ones(WIDTH)
    pairs = np.hstack([normed(np.array(embedded, np.float64), ones), normed(rows[:-1], ones)])
    steps = np.linalg.lstsq(pairs, rows[1:] - rows[:-1], rcond=1e-6)[0].T

    ids = np.array(sorted({*range(0, pair.vocabulary, 3), *tokens}))
    output = np.linalg.lstsq(normed(rows, ones), logits[:, ids], rcond=1e-6)[0].T
    sharp = np.zeros((HEADS, 2, SIZE // 2))
    sharp[:, 0, :4] = SHARP
    wide, same = mx.zeros((WIDTH, 2 * WIDTH)), mx.eye(WIDTH)
    start = "midlayer.self_attn."
    return {
        "fc.weight": mx.concatenate([3 * same, -3 * same, same], axis=1),
        "norm.weight": mx.ones(WIDTH),
        "lm_head.weight": mx.array(output.astype(np.float32)),
        "d2t": mx.array(ids - np.arange(len(ids))),
        f"{start}q_proj.weight": wide,
        f"{start}k_proj.weight": wide,
        f"{start}v_proj.weight": mx.array(steps.astype(np.float32)),
        f"{start}o_proj.weight": same,
        **{f"{start}{it}_proj.bias": mx.array(sharp.flatten().astype(np.float32)) for it in "qk"},
        f"{start}v_proj.bias": mx.zeros(WIDTH),
        "midlayer.mlp.gate_proj.weight": mx.zeros((32, WIDTH)),
        "midlayer.mlp.up_proj.weight": mx.zeros((32, WIDTH)),
        "midlayer.mlp.down_proj.weight": mx.zeros((WIDTH, 32)),
        **{
            f"midlayer.{it}.weight": mx.ones(WIDTH)
            for it in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        },
    }
