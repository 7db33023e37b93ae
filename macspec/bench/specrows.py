"""What was found on Spec-Bench's tasks: a row for each reply, a cell for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from .cells import Ratio, ratio
from .sample import Written

PLAIN = "mlx-lm"
RIVAL = "mlx-lm-draft"
"""Followed by @ and its depth in rows."""
OURS = "auto"

TRIAL = -1
"""The repeat of replies that only look for the rival's best depth."""

LEAST = 0.97
"""How slow the lower end of the interval may be, over plain."""


@dataclass(frozen=True, slots=True)
class Row:
    """A reply."""

    arm: str
    question: str
    temperature: float
    repeat: int
    """From 0; ``TRIAL`` for one that is no part of the comparison."""
    seed: int
    prompt_tokens: int
    tokens: int
    passes: int
    drafted: int
    accepted: int
    ttft_s: float
    decode_tokens: int
    """Those after the first pass's."""
    decode_s: float

    @classmethod
    def of(
        cls,
        arm: str,
        question: str,
        temperature: float,
        repeat: int,
        seed: int,
        written: Written,
    ) -> Row:
        """What an arm wrote."""
        stats = written.stats
        seconds = stats.seconds.decode
        return cls(
            arm=arm,
            question=question,
            temperature=temperature,
            repeat=repeat,
            seed=seed,
            prompt_tokens=stats.prompt_tokens,
            tokens=stats.tokens,
            passes=stats.passes,
            drafted=stats.drafted,
            accepted=stats.accepted,
            ttft_s=round(stats.ttft_s or 0.0, 6),
            decode_tokens=round((stats.decode_tokens_per_s or 0.0) * seconds),
            decode_s=round(seconds, 6),
        )

    @classmethod
    def from_list(cls, stored: Sequence[Any]) -> Row:
        """What ``as_list`` gave.

        Raises:
            TypeError, ValueError: it is something else.
        """
        if len(stored) != len(fields(cls)):
            raise ValueError("a row has another length")
        return cls(*stored)

    def as_list(self) -> list[Any]:
        """The values in the order of the fields."""
        return list(astuple(self))

    @property
    def speed(self) -> float | None:
        """Tokens a second of decode; None where the first pass was all."""
        return self.decode_tokens / self.decode_s if self.decode_tokens and self.decode_s else None


COLUMNS = [field.name for field in fields(Row)]


@dataclass(frozen=True, slots=True)
class Wrote:
    """All replies of one arm in a cell together."""

    tokens_per_pass: float
    tokens_per_s: float
    """Of decode."""
    replies: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Wrote:
        """Of rows of which one at least was decoded."""
        seconds = sum(row.decode_s for row in rows)
        return cls(
            tokens_per_pass=sum(row.tokens for row in rows) / sum(row.passes for row in rows),
            tokens_per_s=sum(row.decode_tokens for row in rows) / seconds if seconds else 0.0,
            replies=len(rows),
        )

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "tokens_per_pass": self.tokens_per_pass,
            "tokens_per_s": self.tokens_per_s,
            "replies": self.replies,
        }


@dataclass(frozen=True, slots=True)
class SpecCell:
    """One task at one temperature."""

    task: str
    temperature: float
    forced: bool
    questions: int
    depth: int
    """The rival's, its best one here."""
    plain: Wrote
    rival: Wrote
    ours: Wrote
    rival_over_plain: Ratio | None
    """Of decode speeds, as all but the last."""
    over_plain: Ratio | None
    over_rival: Ratio | None
    passes_over_rival: Ratio | None
    """Of tokens per pass."""

    @property
    def not_slower(self) -> bool:
        """Whether it is as good as certain that macspec is no slower than plain decoding."""
        low = None if self.over_plain is None else self.over_plain.low
        return low is not None and low >= LEAST

    @property
    def leads(self) -> bool:
        """Whether macspec is ahead of the rival, in tokens per pass and in speed."""
        faster = self.over_rival is not None and self.over_rival.value > 1
        return faster and self.ours.tokens_per_pass > self.rival.tokens_per_pass

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        made: dict[str, Any] = {
            "task": self.task,
            "temperature": self.temperature,
            "forced": self.forced,
            "questions": self.questions,
            "depth": self.depth,
        }
        for name in ("plain", "rival", "ours"):
            made[name] = getattr(self, name).as_dict()
        for name in ("rival_over_plain", "over_plain", "over_rival", "passes_over_rival"):
            found = getattr(self, name)
            made[name] = None if found is None else found.as_dict()
        return made

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SpecCell:
        """What ``as_dict`` gave.

        Raises:
            KeyError, TypeError: it is something else.
        """
        values = dict(stored)
        for name in ("plain", "rival", "ours"):
            values[name] = Wrote(**values[name])
        for name in ("rival_over_plain", "over_plain", "over_rival", "passes_over_rival"):
            values[name] = None if values[name] is None else Ratio(**values[name])
        return cls(**values)


def cells(
    rows: Sequence[Row], tasks: Mapping[str, str], forced: Mapping[str, bool]
) -> Iterator[SpecCell]:
    """The cells of whatever was measured so far, by temperature and task.

    Args:
        tasks: of each question, its task; in the order of the table.
        forced: of each task, whether its replies were recorded ones.
    """
    counted = [row for row in rows if row.repeat != TRIAL]
    for temperature in sorted({row.temperature for row in counted}):
        for task in dict.fromkeys(tasks.values()):
            members = [
                row
                for row in counted
                if row.temperature == temperature and tasks[row.question] == task
            ]
            plain = [row for row in members if row.arm == PLAIN]
            rival = [row for row in members if row.arm.startswith(RIVAL)]
            ours = [row for row in members if row.arm == OURS]
            if not (plain and rival and ours):
                continue
            yield SpecCell(
                task=task,
                temperature=temperature,
                forced=forced[task],
                questions=len({row.question for row in members}),
                depth=int(rival[0].arm.removeprefix(f"{RIVAL}@")),
                plain=Wrote.of(plain),
                rival=Wrote.of(rival),
                ours=Wrote.of(ours),
                rival_over_plain=_speeds(rival, plain),
                over_plain=_speeds(ours, plain),
                over_rival=_speeds(ours, rival),
                passes_over_rival=_passes(ours, rival),
            )


def best_depths(
    rows: Sequence[Row], tasks: Mapping[str, str]
) -> dict[tuple[float, str], dict[int, float]]:
    """For each temperature and task, the rival's decode speed by depth, in its trials."""
    found: dict[tuple[float, str], dict[int, list[Row]]] = {}
    for row in rows:
        if row.repeat == TRIAL:
            depth = int(row.arm.removeprefix(f"{RIVAL}@"))
            cell = found.setdefault((row.temperature, tasks[row.question]), {})
            cell.setdefault(depth, []).append(row)
    return {
        key: {depth: Wrote.of(own).tokens_per_s for depth, own in sorted(by_depth.items())}
        for key, by_depth in found.items()
    }


def _speeds(ours: Sequence[Row], theirs: Sequence[Row]) -> Ratio | None:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for mine, other in _paired(ours, theirs):
        if mine.speed is not None and other.speed is not None:
            pairs.setdefault(mine.question, []).append((mine.speed, other.speed))
    return ratio(pairs)


def _passes(ours: Sequence[Row], theirs: Sequence[Row]) -> Ratio | None:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for mine, other in _paired(ours, theirs):
        both = mine.tokens / mine.passes, other.tokens / other.passes
        pairs.setdefault(mine.question, []).append(both)
    return ratio(pairs)


def _paired(ours: Sequence[Row], theirs: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    other = {(row.question, row.repeat): row for row in theirs}
    for row in ours:
        if (row.question, row.repeat) in other:
            yield row, other[row.question, row.repeat]
