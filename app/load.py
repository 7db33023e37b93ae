"""How much of a core the transcript takes, and how long it keeps the event loop waiting.

``python -m macspec.app.load`` prints figures; ``--screen`` draws on this terminal instead of
nowhere.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from textual.app import App, ComposeResult

from .talk.turns import Piece, Span, Turn, TurnStats
from .widgets.transcript import Transcript

ABOUT = (
    "speculative decoding draft model proposes several tokens which the target verifies in one "
    "pass so the text stays the same while it comes faster on most machines"
)
WORDS = ABOUT.split()

CODE = '''```python
def accept(p: list[float], q: list[float], u: float) -> bool:
    """Whether a drafted token stands."""
    for index, (a, b) in enumerate(zip(p, q)):
        if u < a / b:  # the ratio test
            return True
    return False
```
'''

STATS = TurnStats(500, 41.3, 0.72, 3.1, 0.42, 0.31, "made up")
CHARACTERS = 4
"""Of a token, about."""


def sentence(rng: random.Random, words: int) -> str:
    """Words in no order."""
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def text_of(rng: random.Random, characters: int) -> str:
    """Markdown of all kinds."""
    parts: list[str] = []
    while sum(map(len, parts)) < characters:
        kind = rng.random()
        if kind < 0.5:
            parts.append(sentence(rng, rng.randint(30, 90)) + "\n\n")
        elif kind < 0.7:
            items = (f"{n}. **{sentence(rng, 3)}** {sentence(rng, 16)}\n" for n in range(1, 6))
            parts.append("".join(items) + "\n")
        elif kind < 0.85:
            parts.append(CODE + "\n")
        elif kind < 0.93:
            rows = (f"| {sentence(rng, 2)} | {n} | {3 * n} ms |\n" for n in range(8))
            parts.append("| name | rows | time |\n|---|---:|---:|\n" + "".join(rows) + "\n")
        else:
            parts.append(f"## {sentence(rng, 5)}\n\n")
    return "".join(parts)[:characters]


def spans_of(rng: random.Random, text: str) -> list[Span]:
    """Who could have written it."""
    left, spans = len(text), list[Span]()
    while left > 0:
        length = min(rng.randint(1, 12), left)
        spans.append((length, rng.choice(["draft", "draft", "ngram", None])))
        left -= length
    return spans


def conversation(turns: int, characters: int = 2_000) -> list[Turn]:
    """Turns of the user and replies of so many characters."""
    rng, made = random.Random(1), list[Turn]()
    for id in range(1, turns + 1):
        if id % 2:
            made.append(Turn(id, "user", sentence(rng, 20)))
        else:
            text = text_of(rng, characters)
            spans = spans_of(rng, text)
            made.append(Turn(id, "assistant", text, spans=spans, model="target", stats=STATS))
    return made


def pieces_of(text: str, characters: int) -> Iterator[Piece]:
    """A text as it streams."""
    rng = random.Random(2)
    for at in range(0, len(text), characters):
        part = text[at : at + characters]
        yield Piece(part, spans_of(rng, part))


@dataclass
class Lateness:
    """How long the event loop kept a timer waiting."""

    worst: float = 0.0
    """Seconds."""
    busy: float = 0.0
    """The most of this process's own time in such a wait: what is left of it on a quiet machine."""
    all: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        while True:
            wall, core = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.004)
            late = time.perf_counter() - wall - 0.004
            self.all.append(late)
            self.worst = max(self.worst, late)
            self.busy = max(self.busy, time.process_time() - core)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one scenario took."""

    name: str
    seconds: float
    core: float
    """Share of one core."""
    p99: float
    """Lateness of the event loop in seconds."""
    worst: float
    busy: float
    """Of the process's own time, the most between two turns of the event loop."""

    def __str__(self) -> str:
        return (
            f"{self.name:34} {self.seconds:6.1f} s  {self.core:6.1%} of a core  "
            f"late: p99 {self.p99 * 1e3:5.1f} ms, worst {self.worst * 1e3:5.1f} ms "
            f"(own {self.busy * 1e3:5.1f} ms)"
        )


Scenario = Callable[[Transcript], Awaitable[None]]


class Load(App[list[Figures]]):
    """A transcript, and scenarios that are played on it.

    Args:
        wait: seconds for everything to be imported before the first one.
    """

    def __init__(self, scenarios: dict[str, Scenario], wait: float = 1.0) -> None:
        super().__init__()
        self._scenarios, self._wait = scenarios, wait

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.run_worker(self._play())

    async def _play(self) -> None:
        transcript, figures = self.query_one(Transcript), []
        await asyncio.sleep(self._wait)
        gc.collect()
        gc.freeze()
        for name, scenario in self._scenarios.items():
            lateness = Lateness()
            watch = asyncio.create_task(lateness.watch())
            wall, core = time.perf_counter(), time.process_time()
            await scenario(transcript)
            core, wall = time.process_time() - core, time.perf_counter() - wall
            watch.cancel()
            late = sorted(lateness.all)
            p99 = late[int(len(late) * 0.99)] if late else 0.0
            figures.append(Figures(name, wall, core / wall, p99, lateness.worst, lateness.busy))
        self.exit(figures)


async def stream(transcript: Transcript, text: str, characters: int, every: float) -> None:
    """A reply that comes in pieces, one ``every`` so many seconds."""
    await transcript.begin(Turn(0, "assistant", "", state="open", model="target"))
    spans, start = list[Span](), time.perf_counter()
    for number, piece in enumerate(pieces_of(text, characters)):
        spans += piece.spans
        transcript.feed(piece)
        await asyncio.sleep(max(start + number * every - time.perf_counter(), 0))
    await transcript.end(Turn(0, "assistant", text, spans=spans, model="target", stats=STATS))
    await asyncio.sleep(0.3)


def scenarios(seconds: float) -> dict[str, Scenario]:
    """What is played: an ordinary reply, one that is tinted, and texts that are too much."""
    rng = random.Random(3)
    ordinary = text_of(rng, int(30 * CHARACTERS * seconds))
    huge, line = text_of(rng, 200_000), "word " * 1_000

    async def reply(transcript: Transcript, tint: bool) -> None:
        await transcript.show(conversation(40))
        transcript.tint = tint
        await stream(transcript, ordinary, 3 * CHARACTERS, 0.1)
        transcript.tint = False

    async def flood(transcript: Transcript, text: str, characters: int) -> None:
        await transcript.show(conversation(40))
        await stream(transcript, text, characters, 0.01)

    async def opening(transcript: Transcript, turns: list[Turn]) -> None:
        await transcript.show(turns)
        await asyncio.sleep(0.5)
        transcript.scroll_home(animate=False)
        await asyncio.sleep(0.5)

    return {
        "30 tok/s after 40 turns": lambda t: reply(t, False),
        "the same, tinted": lambda t: reply(t, True),
        "200,000 characters streamed": lambda t: flood(t, huge, 400),
        "200,000 characters opened": lambda t: opening(t, [Turn(1, "assistant", huge)]),
        "a line of 5,000 characters streamed": lambda t: flood(t, line, 50),
        "400 turns opened": lambda t: opening(t, conversation(400)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m macspec.app.load", description=__doc__)
    parser.add_argument("--screen", action="store_true", help="draw on this terminal")
    parser.add_argument("--seconds", type=float, default=15, help="length of the ordinary reply")
    options = parser.parse_args()
    app = Load(scenarios(options.seconds))
    size = None if options.screen else (120, 36)
    for figures in app.run(headless=not options.screen, size=size) or ():
        print(figures, file=sys.stdout)


if __name__ == "__main__":
    main()
