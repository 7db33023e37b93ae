"""Step 5: what the pair is worth. Needs macspec, and PyTorch not at all.

Measures on held-out chats: tokens per pass at a fixed depth with the draft model and with n-gram
drafting alone, the target's loss, decode speed beside mlx-lm's plain loop, and how long loading
and the first token take; and writes what the target answers to fifty openings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
from corpus import Chat, load
from mlx_lm import stream_generate
from mlx_lm.sample_utils import make_sampler
from prepare import OURS

from macspec import Finished, Sampling, Session, load_pair

MIX = {
    "ours": 40,
    "schema-guided-dialogue": 14,
    "taskmaster-4": 2,
    "topical-chat": 2,
    "gsm8k-train": 1,
    "chatterbot-english": 1,
}
"""Held-out chats by source, near their shares of the training text."""

HERE = Path(__file__).resolve().parent


def prompts(held: dict[str, list[Chat]], seed: int) -> list[tuple[str, Chat]]:
    """Held-out chats, each up to one of its assistant's turns."""
    rng = Random(seed)
    picked = []
    for source, count in MIX.items():
        rows = held.get(source, [])
        for chat in rng.sample(rows, min(count, len(rows))):
            turns = [n for n, turn in enumerate(chat) if turn["role"] == "assistant" and n]
            if turns:
                picked.append((source, chat[: rng.choice(turns)]))
    return picked


def reply(session: Session, messages: Any, sampling: Sampling, longest: int) -> Finished:
    *_, last = session.reply(messages, sampling, max_tokens=longest)
    assert isinstance(last, Finished)
    return last


def acceptance(
    pair: Any, chats: list[tuple[str, Chat]], depth: int, longest: int
) -> dict[str, Any]:
    """Tokens per pass by drafter, temperature and source; all tokens over all passes."""
    out: dict[str, Any] = {}
    for method in ("draft", "ngram"):
        for temperature in (0.0, 0.7, 1.0):
            session = Session(pair, method=method, depth=depth, rule="block")
            sums: dict[str, list[int]] = {}
            for n, (source, chat) in enumerate(chats):
                sampling = Sampling(temperature=temperature, seed=1000 * n + 7)
                stats = reply(session, chat, sampling, longest).stats
                for key in (source, "all"):
                    row = sums.setdefault(key, [0, 0])
                    row[0] += stats.tokens
                    row[1] += stats.passes
            got = {key: round(tokens / passes, 3) for key, (tokens, passes) in sums.items()}
            out[f"{method} {temperature}"] = got
            print(f"{method} T={temperature} depth {depth}: {got}", flush=True)
    return out


def loss(pair: Any, held: dict[str, list[Chat]], chats: int = 40) -> dict[str, float]:
    """Nats per token of what assistants say, each chat read from its beginning."""
    tokenizer = pair.target.tokenizer
    roles = {"<|assistant|>": True, "<|user|>": False, "<|system|>": False}
    marks = {tokenizer.convert_tokens_to_ids(mark): said for mark, said in roles.items()}
    out: dict[str, float] = {}
    for source, rows in held.items():
        total, count = 0.0, 0
        for chat in rows[:chats]:
            ids = list(tokenizer.apply_chat_template(chat))[: pair.context]
            saying, picks = False, []
            for n, token in enumerate(ids):
                if token in marks:
                    saying = marks[token]
                elif saying:
                    picks.append(n)
            if not picks:
                continue
            logits = pair.target.module(mx.array([ids[:-1]]))[0].astype(mx.float32)
            logits = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            before, wanted = mx.array([n - 1 for n in picks]), mx.array([ids[n] for n in picks])
            total -= sum(logits[before, wanted].tolist())
            count += len(picks)
        out[source] = round(total / count, 4)
    out["mean"] = round(sum(out.values()) / len(out), 4)
    return out


def speed(pair: Any, chats: list[tuple[str, Chat]], longest: int) -> dict[str, float]:
    """Decode tokens per second, ours by depth over mlx-lm's plain loop, chat by chat in turn."""
    out: dict[str, float] = {}
    for temperature in (0.0, 0.7):
        sessions = {depth: Session(pair, method="draft", depth=depth) for depth in (1, 2, 3, 4)}
        spent: dict[str, list[float]] = {}
        for n, (_, chat) in enumerate([chats[0], *chats]):  # the first only warms up
            order = [0, *sessions]
            for depth in order if n % 2 else order[::-1]:
                if depth == 0:
                    tokens, seconds = plain(pair, chat, temperature, n, longest)
                else:
                    sampling = Sampling(temperature=temperature, seed=n)
                    stats = reply(sessions[depth], chat, sampling, longest).stats
                    seconds = stats.seconds.decode
                    tokens = round((stats.decode_tokens_per_s or 0) * seconds)
                if n:
                    row = spent.setdefault(f"depth {depth}" if depth else "plain", [0.0, 0.0])
                    row[0] += tokens
                    row[1] += seconds
        rates = {key: tokens / seconds for key, (tokens, seconds) in spent.items()}
        for key, rate in sorted(rates.items(), reverse=True):
            name = f"T={temperature} {key}"
            out[name] = round(rate if key == "plain" else rate / rates["plain"], 2)
        print({k: v for k, v in out.items() if k.startswith(f"T={temperature}")}, flush=True)
    return out


def plain(pair: Any, chat: Chat, temperature: float, seed: int, longest: int) -> tuple[int, float]:
    """Tokens after the first and their seconds, with mlx-lm's own loop."""
    tokenizer = pair.target.tokenizer
    ids = list(tokenizer.apply_chat_template(chat, add_generation_prompt=True))
    mx.random.seed(seed)
    first = None
    sampler = make_sampler(temp=temperature)
    for response in stream_generate(
        pair.target.module, tokenizer, ids, max_tokens=longest, sampler=sampler
    ):
        first = first or time.perf_counter()
        made = response.generation_tokens
    return made - 1, time.perf_counter() - (first or 0.0)


def loading(target: Path, draft: Path | None) -> dict[str, float]:
    """Seconds to load the pair here, and of a whole process up to its first token."""
    begin = time.perf_counter()
    load_pair(str(target), str(draft) if draft else None)
    loaded = time.perf_counter() - begin
    command = [sys.executable, "-m", "macspec", "run", "--target", str(target), "hello"]
    command += ["--max-tokens", "1", *(("--draft", str(draft)) if draft else ())]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return {"load_s": round(loaded, 2), "cold_start_s": round(time.perf_counter() - begin, 2)}


def quoted(text: str) -> str:
    """A reply as a quotation in Markdown, line by line."""
    return "\n".join(f"   > {line}".rstrip() + "  " for line in text.split("\n"))


def transcript(pair: Any, path: Path, longest: int) -> Iterator[str]:
    """The fifty openings and what the target says at temperature 0.7."""
    openings: list[list[str]] = json.loads((HERE / "openings.json").read_text(encoding="utf-8"))
    lines = []
    session = Session(pair, method="draft" if pair.draft else "off", depth=3)
    for n, turns in enumerate(openings, 1):
        messages: Chat = []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            last = reply(session, messages, Sampling(temperature=0.7, seed=n), longest)
            messages.append({"role": "assistant", "content": last.text})
            ended = "" if last.reason == "end" else f" [{last.reason}]"
            lines.append(f"{n}. **{turn}**\n{quoted(last.text + ended)}\n")
            yield last.reason
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, help="without it, only what the target is worth")
    parser.add_argument("--texts", type=Path, help="folder with the public texts")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--longest", type=int, default=96, help="longest reply, in tokens")
    parser.add_argument("--every", type=int, default=1, help="only one held-out chat in this many")
    parser.add_argument("--transcript", type=Path, help="file for the replies to the openings")
    parser.add_argument("--speed", action="store_true", help="measure speed too")
    parser.add_argument("--out", type=Path, help="file for all numbers, as JSON")
    args = parser.parse_args()
    _, held = load(args.texts, OURS)
    chats = prompts(held, 5)[:: args.every]
    pair = load_pair(str(args.target), str(args.draft) if args.draft else None)
    numbers: dict[str, Any] = {
        "parameters": {m.name: m.parameters for m in (pair.target, pair.draft) if m},
        "bytes": {
            str(f): f.stat().st_size
            for d in filter(None, (args.target, args.draft))
            for f in sorted(d.iterdir())
        },
        **loading(args.target, args.draft),
    }
    print(numbers, flush=True)
    numbers["held_out_loss"] = loss(pair, held)
    print(numbers["held_out_loss"], flush=True)
    if pair.draft:
        numbers["tokens_per_pass"] = acceptance(pair, chats, args.depth, args.longest)
    if args.transcript:
        reasons = list(transcript(pair, args.transcript, 200))
        numbers["ended"] = f"{reasons.count('end')} of {len(reasons)}"
        print("replies that ended by themselves:", numbers["ended"])
    if args.speed and pair.draft:
        numbers["speed"] = speed(pair, chats, args.longest)
    if args.out:
        args.out.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
