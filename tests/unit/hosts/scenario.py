"""Rank 0 of a group on this machine, in a process of its own: MLX joins one group a process.

``python scenario.py FOLDER COUNT NAME CHANGES TOKENS WAYS EDITS`` prints where replies differ from
those of one process, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "heads")]

import mlx.core as mx  # noqa: E402
from groups import SHAPE, hosts_file, shared_target  # noqa: E402
from headfiles import mtp_tensors  # noqa: E402

from macspec import Round, Sampling, Session, load_pair  # noqa: E402
from macspec.divergence import first_difference  # noqa: E402
from macspec.hosts.group import Group, group_of  # noqa: E402
from macspec.models import Pair  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over "
GREEDY, KEYED = Sampling(temperature=0), Sampling(temperature=0.9, seed=3)
METHODS = ("draft", "ngram", "mtp")


def said(
    session: Session,
    sampling: Sampling,
    count: int,
    change: Callable[[int], None],
    text: str = TEXT,
) -> Any:
    for number, event in enumerate(session.reply(text, sampling, raw=True, max_tokens=count)):
        if isinstance(event, Round):
            change(number)
    assert session.finished is not None
    return session.finished


def unchanged(number: int) -> None: ...


SENDING = ("all_sum", "all_gather", "send", "recv_like")


@contextmanager
def counted() -> Iterator[list[str]]:
    """What MLX sends and receives, as its functions are called."""
    stock, calls = {name: getattr(mx.distributed, name) for name in SENDING}, []

    def counting(name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            calls.append(name)
            return stock[name](*args, **named)

        return call

    for name in SENDING:
        setattr(mx.distributed, name, counting(name))
    try:
        yield calls
    finally:
        for name, function in stock.items():
            setattr(mx.distributed, name, function)


def messages(pair: Pair, group: Group) -> list[tuple[list[str], int]]:
    """What a pass of one row and one of five send, and how many commands they are."""
    model = Session(pair).decoder.target
    model.read(range(20))
    found = []
    link = group.ranks[0].link
    assert link is not None
    for rows in (1, 5):
        before = link.sent
        with counted() as calls:
            mx.eval(model.logits(mx.arange(rows).astype(mx.uint32), rows))
        found.append((calls, link.sent - before))
    return found


def edited(alone: Session, pair: Pair, count: int) -> list[int | None]:
    """Where replies differ after edits anywhere, with every drafter, and depths that change."""
    rng, words = random.Random(5), TEXT.split()
    session = Session(pair, rule="keyed")
    differences = []

    def change(number: int) -> None:
        session.depth = rng.choice((0, 1, 3, 7))

    for _ in range(count):
        cut = rng.randrange(1, len(words))
        words = [*words[:cut], *rng.choices(TEXT.split(), k=rng.randrange(1, 6))][-40:]
        session.method = rng.choice(("auto", "off", *METHODS))
        sampling, tokens = rng.choice((GREEDY, KEYED)), rng.randrange(1, 7)
        ids = said(session, sampling, tokens, change, " ".join(words)).token_ids
        expected = said(alone, sampling, tokens, unchanged, " ".join(words)).token_ids
        differences.append(first_difference(expected, ids))
    return differences


def main(
    folder: Path,
    count: int,
    name: str,
    changes: dict[str, Any],
    tokens: int,
    ways: int,
    edits: int,
) -> None:
    target = shared_target(folder, name, **changes)
    group = group_of(str(hosts_file(folder, count)))
    draft = str(target if ways == 1 else shared_target(folder, "llama"))
    settings: dict[str, Any] = {"context": 2048}
    width = {**SHAPE, **changes}["hidden_size"]
    one = load_pair(str(target), draft, **settings)
    mx.save_safetensors(str(target / "mtp.safetensors"), mtp_tensors(one.target.module, width))
    pair = load_pair(str(target), draft, group=group, **settings)
    spread = pair.target.spread
    assert spread is not None
    report: dict[str, Any] = {"how": spread.shares.how, "differences": []}  # type: ignore[attr-defined]
    report["messages"] = messages(pair, group)
    report["kind"] = None if pair.head is None else pair.head.kind
    alone = Session(one, method="off", rule="keyed")
    together = Session(pair, method="off", rule="keyed")
    drafted, able = 0, together.decoder.portfolio
    for sampling in (GREEDY, KEYED)[-ways:]:
        expected = said(alone, sampling, tokens, unchanged).token_ids
        ids = said(together, sampling, tokens, unchanged).token_ids
        report["differences"].append(first_difference(expected, ids))
        for method in (it for it in METHODS if it in able):
            session = Session(pair, method=method, depth=4, rule="keyed")

            def deeper(number: int, session: Session = session) -> None:
                session.depth = (4, 1, 7)[number % 3]

            finished = said(session, sampling, tokens, deeper)
            drafted += finished.stats.drafted
            report["differences"].append(first_difference(ids, finished.token_ids))
    report["drafted"] = drafted
    report["differences"] += edited(alone, pair, edits)
    print(json.dumps(report))
    group.close()


if __name__ == "__main__":
    folder, count, name, changes, *numbers = sys.argv[1:]
    main(Path(folder), int(count), name, json.loads(changes), *map(int, numbers))
