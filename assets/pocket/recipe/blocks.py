"""Heads that draft a whole block in one pass: DFlash (arXiv:2602.06036) and DSpark
(arXiv:2607.05147).

Every row of a block reads the target's hidden rows before it, projected once, and all rows of its
block. Training takes many blocks of a text at once, each at an anchor of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from net import EPS, THETA, Layer, Net, Shape, begun, rotate, states
from torch import Tensor, nn
from torch.nn import functional
from train import parted

GUESSES = 7
"""Tokens that a block proposes."""

FADE = 0.8
"""Weight of a guess's loss beside that of the guess before."""

BETWEEN = 6
"""Tokens of text for each block that is trained on it."""

OTHERS = 0.2
"""Weight of a guess that is not of an assistant's turn."""

MASK = 0
"""The token that stands for what is to be guessed; the tokenizer never produces it."""

TAPS = 3
"""Layers of the target that are read."""

RANK = 64
"""Of DSpark's table of pairs."""


class Block(nn.Module, ABC):
    """The part that both share: layers whose rows attend to context and block, both ways.

    It is as wide as the draft model, and begins with its weights.

    Args:
        ids: tokens that it guesses; it still reads all of them.
    """

    first: int
    """The block's first row that guesses; row 0 is the last known token's."""

    def __init__(self, target: Shape, draft: Net, ids: Tensor) -> None:
        super().__init__()
        self.shape, self.deep = draft.shape, target.layers
        self.register_buffer("ids", ids, persistent=False)
        # Evenly over the target's depth.
        reads = min(TAPS, target.layers)
        self.taps = [(2 * n + 1) * target.layers // (2 * reads) for n in range(reads)]
        self.fc = nn.Linear(reads * target.width, draft.shape.width, bias=False)
        self.hidden_norm = nn.RMSNorm(draft.shape.width, eps=EPS)
        layer, self.norm, self.embed_tokens, self.lm_head = begun(draft, ids)
        layer.q_norm = nn.RMSNorm(draft.shape.head, eps=EPS)
        layer.k_norm = nn.RMSNorm(draft.shape.head, eps=EPS)
        self.layers = nn.ModuleList([layer])

    @property
    def size(self) -> int:
        """Rows of a block."""
        return GUESSES + self.first

    def rows(self, target: Net, seen: list[Tensor], ids: Tensor, anchors: Tensor) -> Tensor:
        """Normed rows (texts, blocks, ``GUESSES``, width) of blocks at anchors (texts, blocks).

        The rows of the target before an anchor are known, that of the anchor itself is not.
        """
        texts, length = ids.shape
        count, size = anchors.shape[1], self.size
        context = self.hidden_norm(self.fc(torch.cat([seen[tap] for tap in self.taps], -1)))
        known = ids.gather(1, anchors)[..., None]
        tokens = torch.cat((known, known.new_full((texts, count, size - 1), MASK)), -1)
        x = self.embed_tokens(tokens)
        at = anchors[..., None] + torch.arange(size, device=ids.device)
        own_turn = target.cos[at][:, None], target.sin[at][:, None]
        turn = target.cos[:length], target.sin[:length]
        before = torch.arange(length, device=ids.device) < anchors[..., None]
        for layer in self.layers:
            x = x + self._attended(layer, x, context, own_turn, turn, before)
            h = layer.post_attention_layernorm(x)
            x = x + layer.down_proj(functional.silu(layer.gate_proj(h)) * layer.up_proj(h))
        return self.norm(x)[..., self.first :, :]

    def _attended(
        self,
        layer: Layer,
        x: Tensor,
        context: Tensor,
        own_turn: tuple[Tensor, Tensor],
        turn: tuple[Tensor, Tensor],
        before: Tensor,
    ) -> Tensor:
        """Attention of rows (texts, blocks, size, width) over the context and their block."""
        size, groups = self.shape.head, self.shape.heads // self.shape.kv_heads
        h = layer.input_layernorm(x)

        def split(rows: Tensor) -> Tensor:
            return rows.view(*rows.shape[:-1], -1, size).movedim(-2, 1)

        q = rotate(layer.q_norm(split(layer.q_proj(h))), own_turn) * size**-0.5
        own_k = rotate(layer.k_norm(split(layer.k_proj(h))), own_turn).repeat_interleave(groups, 1)
        own_v = split(layer.v_proj(h)).repeat_interleave(groups, 1)
        k = rotate(layer.k_norm(split(layer.k_proj(context))), turn).repeat_interleave(groups, 1)
        v = split(layer.v_proj(context)).repeat_interleave(groups, 1)
        far = torch.einsum("thbsd,thld->thbsl", q, k)
        far = far.masked_fill(~before[:, None, :, None], -torch.inf)
        weights = torch.cat((far, q @ own_k.mT), -1).softmax(-1)
        length = context.shape[1]
        out = torch.einsum("thbsl,thld->thbsd", weights[..., :length], v)
        out = out + weights[..., length:] @ own_v
        return layer.o_proj(out.movedim(1, -2).flatten(-2))

    @abstractmethod
    def said(self, rows: Tensor, previous: Tensor) -> Tensor:
        """Logits of rows whose guesses follow the tokens ``previous`` (texts, blocks, guesses)."""

    def sure(self, rows: Tensor, previous: Tensor, apart: Tensor) -> Tensor:
        """What else the loss has, given how far each guess is from the target's."""
        return torch.zeros_like(apart)

    def places(self, kinds: Tensor, rng: torch.Generator) -> Tensor:
        """Anchors (texts, blocks): before what the target wrote first, as in ``train.learned``."""
        last = kinds.shape[1] - GUESSES - 1
        wish = torch.rand(kinds[:, 1:last].shape, generator=rng) + kinds[:, 2 : last + 1]
        return wish.topk(kinds.shape[1] // BETWEEN).indices + 1

    def loss(self, target: Net, ids: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
        """Over blocks at these anchors, for ids (rows, length) and whose tokens they are."""
        with torch.no_grad():
            seen = states(target, ids)
        rows = self.rows(target, seen, ids, places)
        # Guess j follows the token at anchor + j.
        at = (places[..., None] + torch.arange(GUESSES, device=ids.device)).flatten(1)
        with torch.no_grad():
            final = seen[-1]
            truth = final.gather(1, at[..., None].expand(-1, -1, final.shape[-1]))
            wanted = target.logits(truth).float().log_softmax(-1)[..., self.ids]
        previous = ids.gather(1, at).view(*rows.shape[:-1])
        said = self.said(rows, previous).flatten(1, 2).float().log_softmax(-1)
        each, apart = parted(said, wanted)
        each = each + self.sure(rows, previous, apart.detach().view_as(previous)).flatten(1)
        ours = (kinds.gather(1, at + 1) >= 2).float()
        fade = FADE ** torch.arange(GUESSES, device=ids.device)
        weights = (OTHERS + (1 - OTHERS) * ours) * fade.repeat(places.shape[1])
        return (each * weights).sum() / weights.sum()

    def named(self, name: str) -> str:
        """What the packaging calls a parameter whose layer's parts have their usual names."""
        return name.replace(".q_norm", ".self_attn.q_norm").replace(".k_norm", ".self_attn.k_norm")

    def config(self) -> dict[str, object]:
        """``config.json`` of the head's folder."""
        shape = self.shape
        return {
            "model_type": "qwen3",
            "block_size": self.size,
            "hidden_size": shape.width,
            "intermediate_size": shape.inner,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head,
            "num_hidden_layers": len(self.layers),
            "num_target_layers": self.deep,
            "max_position_embeddings": shape.context,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "vocab_size": shape.pieces,
        }


class DFlash(Block):
    """A block whose guesses do not depend on each other."""

    first = 1

    def said(self, rows: Tensor, previous: Tensor) -> Tensor:
        said: Tensor = self.lm_head(rows)
        return said

    def config(self) -> dict[str, object]:
        own = {"mask_token_id": MASK, "target_layer_ids": self.taps}
        return {"architectures": ["DFlashDraftModel"], **super().config(), "dflash_config": own}


class DSpark(Block):
    """A block with a table of pairs, and a guess of how likely each token is accepted."""

    first = 0

    def __init__(self, target: Shape, draft: Net, ids: Tensor) -> None:
        super().__init__(target, draft, ids)
        shape = self.shape
        self.markov_w1 = nn.Embedding(shape.pieces, RANK)
        self.markov_w2 = nn.Linear(RANK, len(ids), bias=False)
        nn.init.normal_(self.markov_w1.weight, std=RANK**-0.5)
        nn.init.zeros_(self.markov_w2.weight)
        self.confidence = nn.Linear(shape.width + RANK, 1)

    def said(self, rows: Tensor, previous: Tensor) -> Tensor:
        said: Tensor = self.lm_head(rows) + self.markov_w2(self.markov_w1(previous))
        return said

    def sure(self, rows: Tensor, previous: Tensor, apart: Tensor) -> Tensor:
        seen = torch.cat((rows, self.markov_w1(previous)), -1).detach()
        return functional.binary_cross_entropy_with_logits(
            self.confidence(seen)[..., 0].float(), 1 - apart, reduction="none"
        )

    def named(self, name: str) -> str:
        name = super().named(name)
        if name.startswith("markov"):
            return f"markov_head.{name}"
        return name.replace("confidence.", "confidence_head.proj.")

    def config(self) -> dict[str, object]:
        return {
            "architectures": ["DSparkDraftModel"],
            **super().config(),
            "mask_token_id": MASK,
            "target_layer_ids": self.taps,
            "markov_rank": RANK,
        }
