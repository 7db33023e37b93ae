"""What a measurement with Spec-Bench found: its rows, a cell for each task, and the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from ..cli.table import Table
from ..stats import ReplyCounter
from .arms import MLX_LM, MLX_LM_DRAFT
from .cells import FORCED, Ratio, ratio
from .promptfile import MT_BENCH
from .report import Block, Record, model_words, ratio_columns, setup_words
from .sample import Sample, Written, pooled_speed, tokens_per_pass

TASKS = (MT_BENCH, "translation", "summarization", "qa", "math_reasoning", "rag")

MACSPEC = "auto"

ARMS = (MLX_LM, MLX_LM_DRAFT, MACSPEC)
"""Those that are compared; in samples the second one's depth follows its name."""

TRIAL = -1
"""The repeat of replies that only look for the fastest depth of mlx-lm's speculation."""

LEAST = 0.97
"""How slow the lower end of the interval over plain decoding may be."""

PLACE = ("arm", "question", "temperature", "repeat", "seed")

COUNTED = ("prompt_tokens", "tokens", "passes", "drafted", "accepted")

COLUMNS = [*PLACE, *COUNTED, "ttft_s", "decode_tokens", "decode_s"]
"""Of the rows in the file; ``decode_tokens`` are those after the first pass's."""


def best_depths(samples: Sequence[Sample]) -> dict[tuple[float, str], int]:
    """By temperature and task, at which depth mlx-lm's speculation was fastest in the trials."""
    trials = defaultdict[tuple[float, str, int], list[Written]](list)
    for it in samples:
        if it.repeat == TRIAL:
            depth = int(it.arm.removeprefix(at_depth("")))
            trials[it.temperature, it.workload, depth].append(it.written)
    # The shallowest of equals comes last.
    ranked = sorted(trials, key=lambda place: (pooled_speed(trials[place]), -place[2]))
    return {(temperature, task): depth for temperature, task, depth in ranked}


class Found(NamedTuple):
    """What was measured on one task at one temperature; lists have a value for each arm."""

    task: str
    temperature: float
    depth: int
    """Of mlx-lm's speculation."""
    speeds: list[float]
    """Decode tokens a second, over all replies together."""
    tokens_per_pass: list[float]
    over_plain: Ratio | None
    over_rival: Ratio | None

    @property
    def leads(self) -> bool:
        """Whether macspec is ahead of mlx-lm's speculation, in tokens per pass and in speed."""
        _, rival, ours = self.tokens_per_pass
        return self.over_rival is not None and self.over_rival.value > 1 and ours > rival

    @property
    def held(self) -> bool:
        """Whether it is surely not much slower than plain decoding."""
        return self.over_plain is not None and (self.over_plain.low or 0.0) >= LEAST


def results(samples: Sequence[Sample], repeats: int) -> Iterator[Found]:
    """What was measured so far, by temperature and task.

    Args:
        repeats: as in ``Preset``.
    """
    depths = best_depths(samples)
    for temperature, task in product(sorted({it.temperature for it in samples}), TASKS):
        members = [
            it
            for it in samples
            if (it.temperature, it.workload) == (temperature, task) and it.repeat != TRIAL
        ]
        if not members:
            continue
        arms = [[it for it in members if it.arm.partition("@")[0] == name] for name in ARMS]
        replies = [[it.written for it in arm] for arm in arms]
        plain, rival, _ = ({it.cell: it for it in arm} for arm in arms)
        yield Found(
            task + (FORCED if members[0].forced else ""),
            temperature,
            depths[temperature, task],
            [pooled_speed(it) for it in replies],
            [tokens_per_pass(it) or 0.0 for it in replies],
            _over(arms[-1], plain, repeats),
            _over(arms[-1], rival, repeats),
        )


def _over(samples: Sequence[Sample], others: Mapping[Any, Sample], repeats: int) -> Ratio | None:
    """Decode speed over another arm's, of replies that both have. The draws of a repeat count
    together: the speeds of different texts are skewed, and their median is less than the speed at
    which all of them are written."""
    drawn = defaultdict[tuple[str, int], list[tuple[Written, Written]]](list)
    for it in samples:
        if (other := others.get(it.cell)) is not None:
            drawn[it.question, it.repeat % repeats].append((it.written, other.written))
    pairs = defaultdict[str, list[tuple[float, float]]](list)
    for (question, _), texts in drawn.items():
        mine, theirs = map(pooled_speed, zip(*texts, strict=True))
        if mine and theirs:
            pairs[question].append((mine, theirs))
    return ratio(pairs)


def blocks(document: Record) -> Iterator[Block]:
    """What was measured, the tables, and how to read them."""
    found = list(results(samples_of(document), document["plan"]["repeats"]))
    yield list(_head(document))
    yield from tables(found)
    if found:
        yield [*verdict(found), *_notes(document)]


def tables(found: Sequence[Found]) -> Iterator[Table]:
    """A table for each temperature."""
    columns = (
        "task", "mlx-lm tok/s", "mlx-lm speculative tok/s", "tok/pass", "macspec tok/s", "tok/pass",
        "vs mlx-lm", "95%", "vs mlx-lm speculative", "95%",
    )  # fmt: skip
    for temperature in sorted({it.temperature for it in found}):
        rows = [
            (
                it.task,
                f"{it.speeds[0]:.1f}",
                f"{it.speeds[1]:.1f} @{it.depth}",
                f"{it.tokens_per_pass[1]:.2f}",
                f"{it.speeds[2]:.1f}",
                f"{it.tokens_per_pass[2]:.2f}",
                *ratio_columns(it.over_plain),
                *ratio_columns(it.over_rival),
            )
            for it in found
            if it.temperature == temperature
        ]
        yield Table(f"temperature {temperature:g}", columns, rows)


def verdict(found: Sequence[Found]) -> Iterator[str]:
    """What holds and what does not, cell by cell."""
    above = [it for it in found if it.temperature > 0]
    yield (
        f"the interval over plain begins at {LEAST:g} or above in {sum(it.held for it in found)} "
        f"of {len(found)} cells{_named([it for it in found if not it.held])}"
    )
    yield (
        f"ahead of mlx-lm's speculation in tokens per pass and speed in "
        f"{sum(it.leads for it in above)} of {len(above)} cells above temperature 0"
        f"{_named([it for it in above if not it.leads])}"
    )


def _head(document: Record) -> Iterator[str]:
    plan, pair = document["plan"], document["models"]
    models = f"target {model_words(pair['target'])}, draft {model_words(pair['draft'])}"
    if head := pair["head"]:
        models += f", macspec's head {head['name']} ({head['parameters'] / 1e6:,.1f}M parameters)"
    yield f"{setup_words(document['machine'])}; {models}"
    minutes = sum(run.get("seconds", 0) for run in document["runs"]) / 60
    yield (
        f"{plan['tasks']} questions per task, both turns of {MT_BENCH}; replies of at most "
        f"{plan['max_tokens']} tokens; {plan['repeats']} repeats, "
        f"{plan['repeats'] * plan['draws']} where replies are drawn; measured in {minutes:.0f} min"
    )
    if not document["complete"]:
        yield "NOT COMPLETE: run the same command again to continue"


def _notes(document: Record) -> Iterator[str]:
    depths = ", ".join(map(str, document["plan"]["depths"]))
    yield (
        "tok/s is decode speed; it and tok/pass are over all replies of a task; @ is mlx-lm's "
        f"num_draft_tokens, for each cell the fastest of {depths} on these very questions"
    )
    yield (
        "vs: ratio of decode speeds, paired by question, each the median of its repeats, with its "
        "95% bootstrap interval; where replies are drawn, those of a repeat count together"
    )
    if any(question["forced"] for question in document["questions"]):
        yield (
            "forced: decoded along the recorded answer, which this target cannot write: valid for "
            "look-ups and costs, not for a draft model's guesses"
        )


def _named(found: Sequence[Found]) -> str:
    names = ", ".join(f"{it.task.removesuffix(FORCED)} at {it.temperature:g}" for it in found)
    return f"; not in {names}" if names else ""


def at_depth(depth: int | str) -> str:
    return f"{MLX_LM_DRAFT}@{depth}"


def row_of(sample: Sample) -> list[Any]:
    written, stats = sample.written, sample.written.stats
    counts = [getattr(sample, name) for name in PLACE] + [getattr(stats, name) for name in COUNTED]
    ttft, decode = round(stats.ttft_s or 0.0, 6), round(stats.seconds.decode, 6)
    return [*counts, ttft, written.decode_tokens, decode]


def samples_of(document: Record) -> list[Sample]:
    """The replies of a document, as far as tables need them; a ValueError if it is damaged."""
    asked = {it["id"]: it for it in document["questions"]}
    samples = []
    for row in document["rows"]:
        it = dict(zip(COLUMNS, row, strict=True))
        question = asked[it["question"].partition("/")[0]]
        counter = ReplyCounter(
            **{name: it[name] for name in COUNTED},
            first_tokens=it["tokens"] - it["decode_tokens"],
            prefill=it["ttft_s"],
            decode=it["decode_s"],
        )
        place = {name: it[name] for name in PLACE}
        kind = {"workload": question["task"], "forced": question["forced"]}
        written = Written((), "", "", counter.stats())
        samples.append(Sample(**place, **kind, at=0.0, written=written))
    return samples
