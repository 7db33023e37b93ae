"""A transcript on its own, and turns for it."""

from __future__ import annotations

from textual.app import App, ComposeResult

from macspec.app.chat.turns import Turn, TurnStats
from macspec.app.transcript.transcript import Transcript, TurnChosen, VersionAsked

STATS = TurnStats(128, 41.32, 0.725, 3.1, 0.42, 0.31, "apple: cpu, gpu and dram")


class TranscriptHost(App[None]):
    """Nothing but a transcript."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[int | None] = []
        self.versions: list[tuple[int, int]] = []

    def compose(self) -> ComposeResult:
        yield Transcript()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def rows(self) -> list[str]:
        """What the transcript shows, without its scroll bar."""
        height = self.transcript.size.height
        return [self.transcript.render_line(y).text.rstrip() for y in range(height)]

    def on_version_asked(self, event: VersionAsked) -> None:
        self.versions.append((event.turn_id, event.by))

    def on_turn_chosen(self, event: TurnChosen) -> None:
        self.chosen.append(event.turn_id)


def user(number: int, text: str = "", **facts: object) -> Turn:
    return Turn(number, "user", text or f"question {number}", **facts)  # type: ignore[arg-type]


def reply(number: int, text: str = "", **facts: object) -> Turn:
    facts = {"model": "big", "stats": STATS, **facts}
    return Turn(number, "assistant", text or f"answer {number}", **facts)  # type: ignore[arg-type]


def talk(turns: int, lines: int = 4) -> list[Turn]:
    """A conversation; each reply has so many paragraphs."""
    text = "\n\n".join(f"paragraph {line}" for line in range(lines))
    return [
        reply(id, f"answer {id}\n\n{text}") if id % 2 == 0 else user(id)
        for id in range(1, turns + 1)
    ]
