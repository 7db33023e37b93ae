"""Heads that draft one token after the other: MTP (DeepSeek-V3, arXiv:2412.19437) and EAGLE-3
(arXiv:2503.01840).

Both are trained on what they will meet when they draft: each loss takes the chain to ``DEPTH``, so
that a step reads the head's own rows behind the target's, as in EAGLE-3's training-time test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from net import EPS, Layer, Net, Shape, begun, rotate, states
from torch import Tensor, nn
from torch.nn import functional
from train import learned, parted

DEPTH = 5
"""Chain steps in the loss."""

WINDOW = 256
"""Tokens of a training text. An EAGLE-3 head attends to no more positions when it drafts: behind
more than it has seen it is right half as often."""

FADE = 0.8
"""Weight of a step's loss beside that of the step before."""

SAID = 0.35
"""Share of the tokens that are guessed: what the target wrote first, see ``learned``."""


class Head(nn.Module, ABC):
    """A head of one layer; a step makes rows from hidden rows and embedded tokens.

    Args:
        ids: tokens that it guesses.
    """

    def __init__(self, shape: Shape, ids: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("ids", ids, persistent=False)
        self.layer = Layer(shape)
        self.norm = nn.RMSNorm(shape.width, eps=EPS)

    @abstractmethod
    def embedded(self, target: Net, ids: Tensor) -> Tensor:
        """What a step reads of tokens."""

    @abstractmethod
    def output(self, target: Net) -> Tensor:
        """What turns a normed row into logits of its tokens: a row of weights for each."""

    @abstractmethod
    def enter(self, states: list[Tensor]) -> Tensor:
        """What the first step takes of the target's states."""

    @abstractmethod
    def mix(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The residual, and what attention reads."""

    @abstractmethod
    def leave(self, x: Tensor) -> Tensor:
        """What the next step takes."""

    def chain(self, hidden: Tensor, embedded: Tensor, turn: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Normed rows (rows, length, width) of each of ``DEPTH`` steps.

        At step s the row of position i stands at the end of a chain that left the target's rows at
        i - s + 1: it attends to the first step's rows up to there, and to one row of each step
        after.
        """
        rows, length, _ = hidden.shape
        size, groups = self.shape.head, self.shape.heads // self.shape.kv_heads
        places = torch.arange(length)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        out = []
        for step in range(DEPTH):
            residual, read = self.mix(hidden, embedded)
            layer = self.layer
            q, k, v = (
                project(read).view(rows, length, -1, size).transpose(1, 2)
                for project in (layer.q_proj, layer.k_proj, layer.v_proj)
            )
            q, k = rotate(q, turn), rotate(k, turn)
            keys.append(k.repeat_interleave(groups, 1))
            values.append(v.repeat_interleave(groups, 1))
            scale = size**-0.5
            first = (q @ keys[0].mT) * scale
            visible = places[None, :] <= places[:, None] - step
            scores = [first.masked_fill(~visible, -torch.inf)]
            own = []
            for later in range(1, step + 1):
                # The chain's row of that step stands so many positions back.
                back = step - later
                shifted = keys[later].roll(back, 2)
                scores.append((q * shifted).sum(-1, keepdim=True) * scale)
                own.append(values[later].roll(back, 2))
            weights = torch.cat(scores, -1).softmax(-1)
            mixed = weights[..., :length] @ values[0]
            for later, value in enumerate(own):
                mixed = mixed + weights[..., length + later, None] * value
            x = residual + layer.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))
            h = layer.post_attention_layernorm(x)
            x = x + layer.down_proj(functional.silu(layer.gate_proj(h)) * layer.up_proj(h))
            out.append(self.norm(x))
            hidden = self.leave(x).roll(1, 1)
        return out

    def places(self, kinds: Tensor, rng: torch.Generator) -> Tensor:
        """Where the loss is taken; row i guesses token i + 2."""
        return learned(kinds[:, 2:], SAID, rng)

    def loss(self, target: Net, ids: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
        """Over the chain's steps, at these places of ids (rows, length)."""
        ids = ids[:, :-1]
        with torch.no_grad():
            seen = states(target, ids)
            wanted = target.logits(seen[-1][:, 1:].flatten(0, 1)[places]).float().log_softmax(-1)
            wanted = wanted[:, self.ids]
        hidden, following = self.enter(seen)[:, :-1], self.embedded(target, ids[:, 1:])
        length = hidden.shape[1]
        turn = (target.cos[:length], target.sin[:length])
        output = self.output(target)
        total = torch.zeros((), device=ids.device)
        for step, rows in enumerate(self.chain(hidden, following, turn)):
            said = functional.linear(rows.flatten(0, 1)[places], output).float().log_softmax(-1)
            # A chain needs so many positions to have begun.
            begun = (places % length >= step).float()
            total = total + FADE**step * (parted(said, wanted)[0] * begun).sum() / begun.sum()
        return total

    @abstractmethod
    def named(self, name: str) -> str:
        """What the packaging calls a parameter whose layer's parts have their usual names."""

    @abstractmethod
    def config(self) -> dict[str, object]:
        """``config.json`` of the head's folder."""


class MTP(Head):
    """A layer like the target's, which lends it embedding and output head."""

    def __init__(self, target: Shape, draft: Net, ids: Tensor) -> None:
        super().__init__(target, ids)
        self.fc = nn.Linear(2 * target.width, target.width, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(target.width, eps=EPS)
        self.pre_fc_norm_hidden = nn.RMSNorm(target.width, eps=EPS)

    def embedded(self, target: Net, ids: Tensor) -> Tensor:
        return target.embed_tokens(ids).detach()

    def output(self, target: Net) -> Tensor:
        return target.embed_tokens.weight[self.ids]

    def enter(self, states: list[Tensor]) -> Tensor:
        return states[-1]

    def mix(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)
        x = self.fc(torch.cat(parts, -1))
        return x, self.layer.input_layernorm(x)

    def leave(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def named(self, name: str) -> str:
        return name.replace("layer.", "layers.0.", 1) if name.startswith("layer.") else name

    def config(self) -> dict[str, object]:
        return {"model_type": "llama_mtp", "block_size": DEPTH}


class Eagle(Head):
    """A layer as wide as the draft model, whose weights it begins with."""

    def __init__(self, target: Shape, draft: Net, ids: Tensor) -> None:
        shape = draft.shape
        super().__init__(shape, ids)
        self.taps = (min(1, target.layers - 1), target.layers // 2, target.layers - 1)
        self.fc = nn.Linear(3 * target.width, shape.width, bias=False)
        self.hidden_norm = nn.RMSNorm(shape.width, eps=EPS)
        self.layer, self.norm, self.embed_tokens, self.lm_head = begun(draft, ids)
        for name in "qkv":
            old = getattr(self.layer, f"{name}_proj").weight
            wide = nn.Linear(2 * shape.width, len(old), bias=False)
            nn.init.normal_(wide.weight, std=0.5 * wide.in_features**-0.5)
            wide.weight.data[:, : shape.width] = old
            setattr(self.layer, f"{name}_proj", wide)

    def embedded(self, target: Net, ids: Tensor) -> Tensor:
        embedded: Tensor = self.embed_tokens(ids)
        return embedded

    def output(self, target: Net) -> Tensor:
        return self.lm_head.weight

    def enter(self, states: list[Tensor]) -> Tensor:
        return self.fc(torch.cat([states[tap] for tap in self.taps], -1))

    def mix(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.layer.input_layernorm(embedded), self.hidden_norm(hidden)
        return hidden, torch.cat(parts, -1)

    def leave(self, x: Tensor) -> Tensor:
        return x

    def named(self, name: str) -> str:
        if name.startswith("hidden_norm"):
            return f"midlayer.{name}"
        return name.replace("layer.", "midlayer.", 1) if name.startswith("layer.") else name

    def config(self) -> dict[str, object]:
        shape = self.shape
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": shape.width,
            "target_hidden_size": self.fc.in_features // 3,
            "intermediate_size": shape.inner,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head,
            "num_hidden_layers": 1,
            "max_position_embeddings": shape.context,
            "rms_norm_eps": EPS,
            "rope_theta": 10000.0,
            "vocab_size": shape.pieces,
            "layer_types": ["sliding_attention"],
            "sliding_window": WINDOW,
            "eagle_aux_hidden_state_layer_ids": list(self.taps),
        }
