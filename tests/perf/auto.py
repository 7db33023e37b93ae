"""How near ``auto`` comes to the best fixed depth, and to plain decoding, on real models.

    .venv/bin/python tests/perf/auto.py --pair TARGET DRAFT --prompts FILE --out FILE

All settings answer the same chats in turn, in one process, in a random order for each chat, and
every setting keeps its session, as a user does. ``auto`` begins with nothing learned; it measures
while idle, as the engine does after loading and after each reply. Under the keyed rule the text is
the same for all of them, so only time differs.

Ratios are of seconds per decoded token, with 95% intervals by bootstrap over chats. Use prompts
that nothing was tuned on: a JSON list of conversations, each a list of messages.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from macspec import Round, Sampling, Session, load_pair
from macspec.models import Pair

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Times = dict[str, list[tuple[int, float]]]
"""For each setting, decoded tokens and their seconds, by chat."""


def session(pair: Pair, name: str, clock: Callable[[], float]) -> Session:
    if name in ("auto", "off"):
        return Session(pair, rule="keyed", method=name, clock=clock)
    method, depth = name.split("@")
    return Session(pair, rule="keyed", method=method, depth=int(depth), clock=clock)


def answer(session: Session, chat: Any, sampling: Sampling, tokens: int) -> tuple[int, float]:
    """Decoded tokens and their seconds; the first pass, which reads the prompt, is left out."""
    events = session.reply(chat, sampling, max_tokens=tokens)
    rounds = [event for event in events if isinstance(event, Round)][1:]
    return sum(len(it.tokens) for it in rounds), sum(it.seconds for it in rounds)


def measure(
    pair: Pair,
    settings: Sequence[str],
    chats: Sequence[Any],
    temperature: float,
    options: argparse.Namespace,
) -> Times:
    clock = CLOCKS[options.clock]
    sessions = {name: session(pair, name, clock) for name in settings}
    chance, times = random.Random(options.seed), Times()
    warm = Sampling(temperature=temperature, seed=1)
    for name, it in sessions.items():
        it.sampling = warm
        answer(it, "Hello!", warm, 8) if name != "auto" else [*it.measure()]
    for number, chat in enumerate(chats):
        for name in chance.sample(settings, len(settings)):
            sampling = Sampling(temperature=temperature, seed=options.seed + number)
            times.setdefault(name, []).append(
                answer(sessions[name], chat, sampling, options.tokens)
            )
            if name == "auto":
                for _ in sessions[name].measure():
                    pass
    return times


def speed(times: Sequence[tuple[int, float]]) -> float:
    tokens, seconds = map(sum, zip(*times, strict=True))
    return tokens / seconds


def ratio(
    times: Times, of: str, to: str, first: int = 0, draws: int = 1000
) -> tuple[float, float, float]:
    """How much faster one setting is than another, with an interval, from a chat on."""
    chance, chats = random.Random(0), range(first, len(times[of]))

    def over(places: Sequence[int]) -> float:
        return speed([times[of][it] for it in places]) / speed([times[to][it] for it in places])

    found = sorted(over(chance.choices(chats, k=len(chats))) for _ in range(draws))
    return over(chats), found[draws // 40], found[-draws // 40]


def report(times: Times) -> dict[str, Any]:
    fixed = [name for name in times if name != "auto"]
    best = max(fixed, key=lambda name: speed(times[name]))
    return {
        "best": best,
        "over_plain": {name: round(ratio(times, name, "off")[0], 3) for name in times},
        "auto_over_best": ratio(times, "auto", best),
        "auto_over_best_from_third": ratio(times, "auto", best, first=2),
        "auto_over_plain": ratio(times, "auto", "off"),
        "ms_per_token": statistics.median(1e3 * s / n for n, s in times["off"] if n),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pair", nargs=2, metavar=("TARGET", "DRAFT"), help="default: built-in")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--chats", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=1, help="each with fresh sessions")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pair = load_pair(*options.pair) if options.pair else load_pair()
    chats = json.loads(options.prompts.read_text(encoding="utf-8"))[: options.chats]
    settings = ["auto", "off", *(f"draft@{depth}" for depth in options.depths)]
    whole = {}
    for temperature in options.temperatures:
        times: Times = {name: [] for name in settings}
        for repeat in range(options.repeats):
            options.seed += 1000 * (repeat > 0)
            for name, found in measure(pair, settings, chats, temperature, options).items():
                times[name] += found
        whole[f"{temperature:g}"] = report(times)
        print(temperature, json.dumps(whole[f"{temperature:g}"]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(whole, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
