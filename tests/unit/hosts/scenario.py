"""Rank 0 of a group on this machine, in a process of its own: MLX joins one group a process.

``python scenario.py FOLDER COUNT NAME CHANGES TOKENS WAYS`` prints where replies differ from those
of one process, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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


def said(session: Session, sampling: Sampling, count: int, change: Callable[[int], None]) -> Any:
    for number, event in enumerate(session.reply(TEXT, sampling, raw=True, max_tokens=count)):
        if isinstance(event, Round):
            change(number)
    assert session.finished is not None
    return session.finished


def unchanged(number: int) -> None: ...


@contextmanager
def counted(name: str) -> Any:
    """How often a function of MLX is called."""
    stock, calls = getattr(mx.distributed, name), []

    def call(*args: Any, **named: Any) -> Any:
        calls.append(name)
        return stock(*args, **named)

    setattr(mx.distributed, name, call)
    try:
        yield calls
    finally:
        setattr(mx.distributed, name, stock)


def messages(pair: Pair, group: Group) -> list[tuple[int, int]]:
    """Sums and commands of a pass of one row and of one of five."""
    model = Session(pair).decoder.target
    model.read(range(20))
    found = []
    link = group.ranks[0].link
    assert link is not None
    for rows in (1, 5):
        before = link.sent
        with counted("all_sum") as sums:
            mx.eval(model.logits(mx.arange(rows).astype(mx.uint32), rows))
        found.append((len(sums), link.sent - before))
    return found


def main(
    folder: Path, count: int, name: str, changes: dict[str, Any], tokens: int, ways: int
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
    print(json.dumps(report))
    group.close()


if __name__ == "__main__":
    folder, count, name, changes, tokens, ways = sys.argv[1:]
    main(Path(folder), int(count), name, json.loads(changes), int(tokens), int(ways))
