"""Step 3c: heads that draft from the target's hidden rows, trained beside the frozen target.

Two kinds: MTP (DeepSeek-V3, arXiv:2412.19437) and EAGLE-3 (arXiv:2503.01840). Both are trained on
what they will meet when they draft: each loss takes the chain to ``DEPTH``, so that a step reads
the head's own rows behind the target's, as in EAGLE-3's training-time test.
"""

from __future__ import annotations

import argparse
import json
import time
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import torch
from distil import OWN, packed
from net import EPS, Layer, Net, Shape, load, rotate
from pretrain import SAID
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from train import Bar, Schedule, device, keep, learned, windows

DEPTH = 5
"""Chain steps in the loss."""

FADE = 0.8
"""Weight of a step's loss beside that of the step before."""

MIX = 0.5
"""Share of the total variation in the loss; the rest is the KL divergence."""


def seen(net: Net, ids: Tensor) -> list[Tensor]:
    """What each layer puts out for ids (rows, length), and last the normed states."""
    x = net.embed_tokens(ids)
    turn = (net.cos[: ids.shape[1]], net.sin[: ids.shape[1]])
    out = []
    for n, layer in enumerate(net.layers):
        x = layer(x, turn, None, None, n)
        out.append(x)
    return [*out, net.norm(x)]


class Head(nn.Module, ABC):
    """A head of one layer; a step makes rows from hidden rows and embedded tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.layer = Layer(shape)
        self.norm = nn.RMSNorm(shape.width, eps=EPS)

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

    def tensors(self) -> dict[str, Tensor]:
        """Under the names of the packaging, in bfloat16."""
        found = {}
        for name, weight in self.state_dict().items():
            for start in "qkvo":
                name = name.replace(f".{start}_proj", f".self_attn.{start}_proj")
            for start in ("gate", "up", "down"):
                name = name.replace(f".{start}_proj", f".mlp.{start}_proj")
            found[self.named(name)] = weight.to(torch.bfloat16).contiguous()
        return found

    @abstractmethod
    def named(self, name: str) -> str:
        """What the packaging calls a parameter."""

    @abstractmethod
    def config(self) -> dict[str, object]:
        """``config.json`` of the head's folder."""


class MTP(Head):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.fc = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(shape.width, eps=EPS)
        self.pre_fc_norm_hidden = nn.RMSNorm(shape.width, eps=EPS)

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
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        layers = shape.layers
        self.taps = (min(1, layers - 1), max(layers // 2 - 1, 0), max(layers - 4, 0))
        self.fc = nn.Linear(3 * shape.width, shape.width, bias=False)
        self.hidden_norm = nn.RMSNorm(shape.width, eps=EPS)
        for name in "qkv":
            old = getattr(self.layer, f"{name}_proj")
            wide = nn.Linear(2 * shape.width, old.out_features, bias=False)
            nn.init.normal_(wide.weight, std=0.5 * wide.in_features**-0.5)
            setattr(self.layer, f"{name}_proj", wide)

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
            "intermediate_size": shape.inner,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head,
            "num_hidden_layers": 1,
            "max_position_embeddings": shape.context,
            "rms_norm_eps": EPS,
            "rope_theta": 10000.0,
            "vocab_size": shape.pieces,
            "draft_vocab_size": shape.pieces,
            "eagle_aux_hidden_state_layer_ids": list(self.taps),
        }


KINDS = {"mtp": MTP, "eagle": Eagle}


def loss(head: Head, target: Net, ids: Tensor, places: Tensor) -> Tensor:
    """Over the chain's steps, at these places of ``ids`` (rows, length)."""
    with torch.no_grad():
        states = seen(target, ids)
        wanted = target.logits(states[-1][:, 1:].flatten(0, 1)[places]).log_softmax(-1)
    hidden, following = head.enter(states)[:, :-1], target.embed_tokens(ids[:, 1:]).detach()
    length = hidden.shape[1]
    turn = (target.cos[:length], target.sin[:length])
    total = torch.zeros(())
    for step, rows in enumerate(head.chain(hidden, following, turn)):
        said = target.logits(rows.flatten(0, 1)[places]).log_softmax(-1)
        forward = (wanted.exp() * (wanted - said)).sum(-1)
        apart = (said.exp() - wanted.exp()).abs().sum(-1) / 2
        # A chain needs so many positions to have begun.
        begun = places % length >= step
        total = total + FADE**step * ((1 - MIX) * forward + MIX * apart)[begun].mean()
    return total


def train_head(
    work: Path,
    kind: str,
    *,
    minutes: float | None,
    steps: int | None,
    tokens: int,
    rate: float,
    seed: int,
    on: str,
) -> dict[str, object]:
    """Train a head for ``target.pt``; leaves the folder ``KIND`` as macspec loads it."""
    torch.manual_seed(seed)
    target = load(str(work / "target.pt"), on).requires_grad_(False)
    head = KINDS[kind](target.shape).to(on)
    path = work / f"{kind}.checkpoint"
    optimizer = torch.optim.AdamW(head.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.01)
    step, used, count = 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        head.load_state_dict(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        step, used, count = state["step"], state["used"], state["seen"]
    chats, replies = dict(np.load(work / "train.npz")), dict(np.load(work / "replies.npz"))
    written = packed(replies, np.random.default_rng(seed))
    length = min(256, target.shape.context, len(written[0]) - 1)
    rows = max(1, round(OWN * tokens / length))
    others = max(1, tokens // length - rows)
    schedule, bar, kept = Schedule(minutes, steps, used), Bar(kind), time.time()
    while (progress := schedule.progress(step)) < 1:
        own = windows(written[0], written[1], step * rows * length, rows, length)
        other = windows(chats["ids"], chats["kinds"], step * others * length, others, length)
        ids, kinds = (torch.cat(pair) for pair in zip(own, other, strict=True))
        rng = torch.Generator().manual_seed(1000 * step + seed)
        # Row i guesses token i + 2.
        places = learned(kinds[:, 2:], SAID, rng)
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule.rate(progress, step)
        value = loss(head, target, ids[:, :-1].to(on), places.to(on))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step += 1
        count += ids.numel()
        bar.show(schedule.progress(step), schedule.left(step), step, ids.numel(), value.item())
        if time.time() - kept > 120:
            kept = time.time()
            state = {"weights": head.state_dict(), "optimizer": optimizer.state_dict()}
            keep(path, state | {"step": step, "used": schedule.used, "seen": count})
    folder = work / kind
    folder.mkdir(exist_ok=True)
    save_file(head.tensors(), str(folder / "model.safetensors"), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(head.config(), indent=1) + "\n")
    path.unlink(missing_ok=True)
    report: dict[str, object] = {
        "parameters": sum(weight.numel() for weight in head.parameters()),
        "steps": step,
        "tokens": count,
        "minutes": schedule.used / 60,
    }
    print(json.dumps(report))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Step 3c: train a head.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    train_head(
        args.work,
        args.kind,
        minutes=args.minutes,
        steps=args.steps,
        tokens=args.tokens,
        rate=args.rate,
        seed=args.seed,
        on=device(args.device),
    )


if __name__ == "__main__":
    main()
