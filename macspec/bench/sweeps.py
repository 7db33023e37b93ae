"""Sweeps over one setting, and the null test of an arm against itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..choices import RULES
from ..errors import BadOptionError
from ..models import Pair
from .arms import PLAIN, for_mlx_lm
from .cells import FORCED, Cell, Ratio, median, speed_ratio
from .run import Run
from .sample import Sample, named
from .tasks import LENGTHS, long_name

DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)

KV_BITS = (8, 4, 2)

DRAFT_BITS = (8, 4, 2)

AT_ONCE = (1, 2, 4)

WHOLE = 16
"""How keys, values and weights that are not quantized are drawn: most are of so many bits."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An arm of a sweep, and its place in the picture."""

    arm: str
    x: float | str
    series: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured, and how it is shown."""

    over: str
    settings: tuple[Setting, ...]
    workloads: tuple[str, ...] | None = None
    """These are the points, at the length of their prompts, and arms the lines; None: the usual
    ones, and settings are the points."""
    chooses: str | None = None
    """The arm whose own choice is marked."""

    @property
    def arms(self) -> list[str]:
        """The names of all arms, the baseline first."""
        return list(dict.fromkeys([PLAIN, *(it.arm for it in self.settings)]))


@dataclass(frozen=True, slots=True)
class Point:
    """One setting at one temperature."""

    x: float | str
    series: str
    temperature: float
    value: float
    """Decode speed over the baseline's."""
    low: float | None
    high: float | None
    tokens_per_pass: float | None
    acceptance: float | None


def entry(sweep: Sweep, cells: Sequence[Cell], run: Run) -> dict[str, Any]:
    """The points, ready for JSON."""
    places = _places(sweep, cells) if sweep.workloads is None else _by_workload(cells, run)
    points = [
        Point(
            x,
            series + (FORCED if cell.forced else ""),
            cell.temperature,
            **named(cell.speedup, "value", "low", "high"),
            **named(cell, "tokens_per_pass", "acceptance"),
        )
        for cell, x, series in places
        if cell.speedup is not None
    ]
    return {
        "over": sweep.over,
        "measure": f"times {PLAIN}",
        "points": [asdict(point) for point in points],
        "chosen": _chosen(sweep, cells, run.samples),
    }


def _places(sweep: Sweep, cells: Sequence[Cell]) -> Iterator[tuple[Cell, float | str, str]]:
    """Each cell over all tasks, where it stands, and in which series."""
    for it in sweep.settings:
        for cell in cells:
            if cell.whole and cell.arm == it.arm != sweep.chooses:
                yield cell, it.x, it.series


def _by_workload(cells: Sequence[Cell], run: Run) -> Iterator[tuple[Cell, float | str, str]]:
    """The same of each cell over one workload: at the length of its prompts."""
    for cell in cells:
        if not cell.whole:
            name = cell.group.removesuffix(FORCED)
            lengths = [float(len(it.ids)) for it in run.questions if it.workload == name]
            yield cell, median(lengths) or 0.0, cell.arm


def points_of(record: Mapping[str, Any]) -> list[Point]:
    """The points of a document; none where nothing was swept."""
    swept = record.get("sweep")
    return [] if swept is None else [Point(**point) for point in swept["points"]]


def _depth(pair: Pair) -> Sweep:
    method = next(iter(_models(pair)), "ngram")
    settings = [Setting(f"{method}@{depth}", depth, method) for depth in DEPTHS]
    return Sweep("depth", (*settings, Setting("auto", "auto", "")), chooses="auto")


def _drafters(pair: Pair) -> Sweep:
    methods = ["auto", *_models(pair), "ngram", "suffix"]
    return Sweep("drafters", tuple(Setting(it, it, "depth by the controller") for it in methods))


def _models(pair: Pair) -> list[str]:
    """The methods of its draft model and its head."""
    draft = [] if pair.draft is None else ["draft"]
    return draft if pair.head is None else [*draft, pair.head.kind]


def _rules(pair: Pair) -> Sweep:
    return Sweep("rules", tuple(Setting(f"auto:{rule}", rule, "auto") for rule in RULES))


def _trees(pair: Pair) -> Sweep:
    if pair.draft is None:
        raise BadOptionError("this sweep needs a draft model: add --draft")
    settings = [
        Setting(f"{method}:keyed{less}", x, f"{method}, keyed")
        for method in ("auto", "draft")
        for less, x in (("+chains", "chains only"), ("", "and trees"))
    ]
    return Sweep("what is drafted", tuple(settings))


def _context(pair: Pair) -> Sweep:
    fitting = tuple(long_name(length) for length in LENGTHS if length <= pair.context)
    if not fitting:
        raise BadOptionError(
            f"the context of {pair.context} positions is too short for a long prompt: the shortest "
            f"takes {LENGTHS[0]}"
        )
    arms = [
        "plain",
        "auto",
        "mlx-lm",
        *([] if for_mlx_lm(pair).draft is None else ["mlx-lm-draft"]),
    ]
    settings = tuple(Setting(arm, 0, arm) for arm in arms)
    return Sweep("tokens of the prompt", settings, workloads=fitting)


def _kv_bits(pair: Pair) -> Sweep:
    settings = [Setting(arm, WHOLE, arm) for arm in ("plain", "auto")]
    for bits in KV_BITS:
        settings += [Setting(f"{arm}+kv{bits}", bits, arm) for arm in ("plain", "auto")]
    return Sweep("bits of keys and values", tuple(settings))


def _draft_bits(pair: Pair) -> Sweep:
    if pair.draft is None:
        raise BadOptionError("this sweep needs a draft model: add --draft")
    settings = [Setting("draft", WHOLE, "draft")]
    settings += [Setting(f"draft+draft{bits}", bits, "draft") for bits in DRAFT_BITS]
    return Sweep("bits of the draft model", tuple(settings))


def _concurrency(pair: Pair) -> Sweep:
    settings = [
        Setting(arm if count == 1 else f"{arm}/{count}", count, f"{arm}, all together")
        for arm in ("plain", "auto")
        for count in AT_ONCE
    ]
    return Sweep("sessions at once", tuple(settings))


SWEEPS: dict[str, Callable[[Pair], Sweep]] = {
    "depth": _depth,
    "drafters": _drafters,
    "rules": _rules,
    "trees": _trees,
    "context": _context,
    "kv-bits": _kv_bits,
    "draft-bits": _draft_bits,
    "concurrency": _concurrency,
}
"""They raise ``BadOptionError`` where a pair has nothing to sweep."""


def _chosen(sweep: Sweep, cells: Sequence[Cell], samples: Sequence[Sample]) -> dict[str, Any]:
    """By temperature, how deep an arm went by itself, and how fast it was."""
    chosen: dict[str, Any] = {}
    for cell in cells:
        at = f"{cell.temperature:g}"
        if cell.arm != sweep.chooses or not cell.whole or cell.speedup is None or at in chosen:
            continue
        rounds: Counter[int] = Counter()
        place = cell.arm, cell.temperature, cell.forced
        for sample in samples:
            if (sample.arm, sample.temperature, sample.forced) == place:
                for (_, depth), it in sample.written.rounds.items():
                    rounds[depth] += it.count
        if not (whole := rounds.total()):
            continue
        chosen[at] = {
            "x": sum(depth * count for depth, count in rounds.items()) / whole,
            "value": cell.speedup.value,
            "shares": [[depth, count / whole] for depth, count in sorted(rounds.items())],
        }
    return chosen


RUNS = 20

AGAIN = "#2"
"""Behind the name of the arm's double."""


def null_test(samples: Sequence[Sample], arm: str, repeats: int) -> Iterator[dict[str, Any]]:
    """By temperature, an arm's runs of so many repeats against its double, ready for JSON."""
    for temperature, forced in sorted({(it.temperature, it.forced) for it in samples}):
        there = [it for it in samples if (it.temperature, it.forced) == (temperature, forced)]
        runs = [_run(there, arm, range(at * repeats, (at + 1) * repeats)) for at in range(RUNS)]
        ratios = [it for it in runs if it is not None and it.known]
        yield {
            "temperature": temperature,
            "forced": forced,
            "runs": len(ratios),
            "held": sum(it.holds(1.0) for it in ratios),
            "ratios": [asdict(it) for it in ratios],
        }


def _run(samples: Sequence[Sample], arm: str, repeats: range) -> Ratio | None:
    members = [it for it in samples if it.repeat in repeats]
    mine = [it for it in members if it.arm == arm + AGAIN]
    if len({it.repeat for it in mine}) < len(repeats):
        return None
    return speed_ratio(mine, {it.cell: it for it in members if it.arm == arm})
