"""How near ``auto`` comes to the best fixed setting, and to plain decoding, on real models.

    .venv/bin/python tests/perf/auto.py --prompts FILE --out FILE --minutes 15 \\
        --pair built-in --pair TARGET DRAFT

All settings answer the same chats in turn, in one process, in a random order for each chat:
``auto``, plain decoding, and each of the pair's drafters that runs a model at each depth. A setting
keeps its session for some chats, as a user does, then begins a fresh one. ``auto`` begins with
nothing learned; it measures while idle, as the engine does after loading and after each reply.
With ``--rule keyed`` the text is the same for all of them, so only time differs; under the default
rule, which accepts more where tokens are sampled, it is not.

A cell is a pair and a temperature. Cells take turns, a chat each, until all chats are answered or
the time is up. What was answered is in the file, and the same command goes on from there, with the
first session that is not complete. Ratios are of seconds per decoded token, with 95% intervals by
bootstrap over chats; the best fixed setting is chosen from these very chats, which favours it. Use
prompts that nothing was tuned on: a JSON list of conversations, each a list of messages.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from macspec import Round, Sampling, Session, load_pair
from macspec.choices import RULES
from macspec.io import write_atomic
from macspec.models import Pair

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Times = dict[str, list[tuple[int, float]]]
"""For each setting, decoded tokens and their seconds, by chat."""

Found = tuple[float, float, float]
"""A ratio, and the ends of its interval."""


def session(pair: Pair, name: str, options: argparse.Namespace) -> Session:
    method, _, depth = name.partition("@")
    chosen = int(depth) if depth else "auto"
    clock = CLOCKS[options.clock]
    return Session(pair, rule=options.rule, method=method, depth=chosen, clock=clock)


def answer(session: Session, chat: Any, sampling: Sampling, tokens: int) -> tuple[int, float]:
    """Decoded tokens and their seconds; the first pass, which reads the prompt, is left out."""
    events = session.reply(chat, sampling, max_tokens=tokens)
    rounds = [event for event in events if isinstance(event, Round)][1:]
    return sum(len(it.tokens) for it in rounds), sum(it.seconds for it in rounds)


def drafted(pair: Pair, depths: Sequence[int]) -> list[str]:
    """The fixed settings of a pair: its drafters that run a model, at each depth."""
    models = Session(pair).decoder.portfolio.models("auto")
    return [f"{it.name}@{depth}" for it in models for depth in depths]


def answers(
    pair: Pair, temperature: float, times: Times, chats: Sequence[Any], options: argparse.Namespace
) -> Iterator[None]:
    """Answer the chats that are left, one each step, in an order of each repeat's own."""
    settings = ["auto", "off", *drafted(pair, options.depths)]
    if times and set(times) != set(settings):
        raise SystemExit("the file has other settings: give another --out")
    done = len(times.setdefault("auto", [])) // options.fresh * options.fresh
    for name in settings:
        del times.setdefault(name, [])[done:]
    for number in range(done, options.repeats * len(chats)):
        repeat, place = divmod(number, len(chats))
        if number % options.fresh == 0:
            sessions = opened(pair, settings, temperature, options)
        chat = random.Random(repeat).sample(chats, len(chats))[place]
        seed = options.seed + number
        found = {}
        for name in random.Random(seed).sample(settings, len(settings)):
            sampling = Sampling(temperature=temperature, seed=seed)
            found[name] = answer(sessions[name], chat, sampling, options.tokens)
            if name == "auto":
                list(sessions[name].measure())
        for name, took in found.items():
            times[name].append(took)
        yield


def opened(
    pair: Pair, settings: Sequence[str], temperature: float, options: argparse.Namespace
) -> dict[str, Session]:
    """Fresh sessions, which have measured (``auto``) or run (the others) once."""
    sessions = {name: session(pair, name, options) for name in settings}
    for name, it in sessions.items():
        it.sampling = Sampling(temperature=temperature, seed=1)
        if name == "auto":
            list(it.measure())
        else:
            answer(it, "Hello!", it.sampling, 8)
    return sessions


def speed(times: Sequence[tuple[int, float]]) -> float:
    tokens, seconds = map(sum, zip(*times, strict=True))
    return tokens / max(seconds, 1e-9)


def ratio(times: Times, of: str, to: str, places: Sequence[int], draws: int = 1000) -> Found | None:
    """How much faster one setting is than another in these chats, with an interval."""
    chance = random.Random(0)
    places = [it for it in places if times[of][it][0]]
    if not places:
        return None

    def over(places: Sequence[int]) -> float:
        return speed([times[of][it] for it in places]) / speed([times[to][it] for it in places])

    found = sorted(over(chance.choices(places, k=len(places))) for _ in range(draws))
    return over(places), found[draws // 40], found[-draws // 40]


def report(times: Times, fresh: int) -> dict[str, Any]:
    every = range(len(times["auto"]))
    parts = {
        "auto_over_best": every,
        "auto_over_best_in_first_two": [it for it in every if it % fresh < 2],
        "auto_over_best_from_third": [it for it in every if it % fresh >= 2],
    }
    best = max((name for name in times if name != "auto"), key=lambda name: speed(times[name]))
    return {
        "chats": len(every),
        "best": best,
        "over_plain": {it: round(speed(times[it]) / speed(times["off"]), 3) for it in times},
        **{name: ratio(times, "auto", best, part) for name, part in parts.items()},
        "auto_over_plain": ratio(times, "auto", "off", every),
        "plain_ms": 1e3 / speed(times["off"]),
    }


def lines(cell: str, told: dict[str, Any]) -> Iterator[str]:
    def said(name: str) -> str:
        found = told[name]
        return "-" if found is None else "{:.3f} [{:.3f}, {:.3f}]".format(*found)

    best, over = told["best"], told["over_plain"]
    yield (
        f"{cell}: {told['chats']} chats, plain {told['plain_ms']:.1f} ms; best fixed {best} "
        f"({over[best]:.2f} of plain); auto over it {said('auto_over_best')}, in the first two "
        f"chats {said('auto_over_best_in_first_two')}, from the third on "
        f"{said('auto_over_best_from_third')}; over plain {said('auto_over_plain')}"
    )
    yield "    of plain: " + ", ".join(f"{name} {it:.2f}" for name, it in over.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pair", nargs="+", action="append", metavar="FOLDER", help="TARGET DRAFT, or built-in"
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fresh", type=int, default=8, help="chats of a session")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--depths", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--rule", choices=RULES, default="block")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    chats = json.loads(options.prompts.read_text(encoding="utf-8"))[: options.chats]
    cells: dict[str, Times] = {}
    if options.out.exists():
        cells = json.loads(options.out.read_text(encoding="utf-8"))["cells"]
    work = {}
    for names in options.pair or [["built-in"]]:
        pair = load_pair() if names == ["built-in"] else load_pair(*names)
        for temperature in options.temperatures:
            cell = f"{' '.join(names)} at {temperature:g}"
            times = cells.setdefault(cell, {})
            work[cell] = answers(pair, temperature, times, chats, options)
    while work and time.monotonic() < until:
        for cell, steps in list(work.items()):
            if next(steps, cell) is not None:
                del work[cell]
        write_atomic(options.out, json.dumps({"cells": cells}))
    reports = {it: report(times, options.fresh) for it, times in cells.items() if times.get("auto")}
    write_atomic(options.out, json.dumps({"cells": cells, "reports": reports}))
    for cell, told in reports.items():
        print(*lines(cell, told), sep="\n")
    print("complete" if not work else "not complete: run the same command again to go on")


if __name__ == "__main__":
    main()
