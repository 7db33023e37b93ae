"""The Llama architecture as mlx-lm computes it, in PyTorch."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

EPS = 1e-5
THETA = 10000.0

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    head: int = 64
    pieces: int = 4096
    context: int = 2048

    def config(self, bos: int, end: int) -> dict[str, object]:
        """``config.json`` of the model's folder."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head,
            "vocab_size": self.pieces,
            "max_position_embeddings": self.context,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": bos,
            "eos_token_id": end,
            "torch_dtype": "bfloat16",
            "attention_bias": False,
            "mlp_bias": False,
        }


Cache = list[tuple[Tensor, Tensor]]


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
        self.input_layernorm = nn.RMSNorm(shape.width, eps=EPS)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=EPS)
        self.q_proj = nn.Linear(shape.width, queries, bias=False)
        self.k_proj = nn.Linear(shape.width, keys, bias=False)
        self.v_proj = nn.Linear(shape.width, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.width, bias=False)
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor | None,
        past: Cache | None,
        n: int,
    ) -> Tensor:
        rows, length, _ = x.shape
        h = self.input_layernorm(x)
        q, k, v = (
            project(h).view(rows, length, -1, self.shape.head).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, turn), rotate(k, turn)
        if past is not None:
            if len(past) > n:
                k, v = torch.cat((past[n][0], k), 2), torch.cat((past[n][1], v), 2)
                past[n] = (k, v)
            else:
                past.append((k, v))
        groups = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None
        )
        x = x + self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(h)) * self.up_proj(h))


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions, first half of a head with its second half."""
    cos, sin = turn
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Net(nn.Module):
    """A decoder with tied embeddings.

    ``forward`` gives the last layer's normed states of width ``shape.width``; ``logits`` makes
    rows of ``shape.pieces`` from any of them, so that a loss pays only for the rows it uses.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.pieces, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=EPS)
        rates = THETA ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.outer(torch.arange(shape.context).float(), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)
            elif "proj" in name:
                nn.init.normal_(weight, std=0.5 * weight.shape[1] ** -0.5)

    def forward(
        self,
        ids: Tensor,
        past: Cache | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """States for ids of shape (rows, length), at these positions or at 0, 1 and so on."""
        x = self.embed_tokens(ids)
        if positions is None:
            turn = (self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
        else:
            turn = (self.cos[positions][:, None], self.sin[positions][:, None])
        for n, layer in enumerate(self.layers):
            x = layer(x, turn, mask, past, n)
        return self.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        return functional.linear(states, self.embed_tokens.weight)

    def mlx_weights(self) -> dict[str, Tensor]:
        """Weights under the names of mlx-lm's llama, in bfloat16."""
        out = {}
        for name, weight in self.state_dict().items():
            part = "self_attn." if any(f".{p}_proj" in name for p in "qkvo") else ""
            part = "mlp." if any(p in name for p in ("gate_", "up_", "down_")) else part
            head, dot, tail = name.rpartition(".") if not part else ("", "", "")
            if part:
                _, number, rest = name.split(".", 2)
                out[f"model.layers.{number}.{part}{rest}"] = weight
            else:
                out[f"model.{head}{dot}{tail}"] = weight
        return {name: weight.to(torch.bfloat16).contiguous() for name, weight in out.items()}

    def count(self) -> int:
        return sum(weight.numel() for weight in self.parameters())


def states(net: Net, ids: Tensor) -> list[Tensor]:
    """What each layer puts out for ids (rows, length), and last the normed states."""
    x = net.embed_tokens(ids)
    turn = (net.cos[: ids.shape[1]], net.sin[: ids.shape[1]])
    out = []
    for n, layer in enumerate(net.layers):
        x = layer(x, turn, None, None, n)
        out.append(x)
    return [*out, net.norm(x)]


def begun(draft: Net, ids: Tensor) -> tuple[Layer, nn.RMSNorm, nn.Embedding, nn.Linear]:
    """What a small head begins with: a draft model's first layer, norm and embedding, and what
    turns rows into logits of ``ids``."""
    output = nn.Linear(draft.shape.width, len(ids), bias=False)
    output.weight.data = draft.embed_tokens.weight.data[ids].clone()
    first, norm, embedding = copy.deepcopy((draft.layers[0], draft.norm, draft.embed_tokens))
    assert isinstance(first, Layer)
    return first, norm, embedding, output


def half(net: Module) -> Module:
    """A copy in bfloat16, its angles still in float32."""
    copied = copy.deepcopy(net).to(torch.bfloat16)
    for name, buffer in net.named_buffers(recurse=False):
        setattr(copied, name, buffer)
    return copied


def save(net: Net, path: str, **more: object) -> None:
    torch.save({"shape": asdict(net.shape), "weights": net.state_dict(), **more}, path)


def load(path: str, device: str = "cpu") -> Net:
    stored = torch.load(path, map_location=device, weights_only=True)
    net: Net = Net(Shape(**stored["shape"])).to(device)
    net.load_state_dict(stored["weights"])
    return net
