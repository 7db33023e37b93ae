"""What the app costs: the arithmetic, the verdicts, and the stand-ins."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import appcost as table
import pytest
from appcost import AppCost, Plan, late
from madeup import conversation, keep, spans_of
from paced import END, ROUNDS, PacedEngine, Wish
from realapp import Asked, Decoded
from stage import Look, worse

from app import models_of, parser
from macspec.errors import BadOptionError
from macspec.events import Prefilled, Round, Text
from macspec.store import Store
from macspec.worker import ReplyRequest

ASKED = Asked(("--target", "built-in"), "Hello", 256, 4)


def cost(**values: list[float]) -> AppCost:
    made = AppCost(ASKED, Plan(), Path())
    made.values.update(values)
    return made


def test_the_median_is_held_to_the_bar() -> None:
    found = table.measured(
        {"speed": [0.2, 0.05, 0.01, 0.04, 0.3], "keys": [0.09, 0.11, 0.12], "start": []}, Plan()
    )
    assert list(found) == ["speed", "keys"]
    assert (found["speed"].median, found["speed"].held) == (0.05, True)
    assert (found["keys"].median, found["keys"].held) == (0.11, False)
    assert found["speed"].row()[1:] == ("5.0 %", "1.0 %", "30.0 %", "5.0 %", "yes")
    assert found["keys"].row()[1:] == ("110 ms", "90 ms", "120 ms", "80 ms", "NO")


def test_a_faster_app_costs_less_than_nothing() -> None:
    made = cost()
    made._speed(Decoded(256, 80.0, "a"), Decoded(256, 76.0, "a"))
    made._speed(Decoded(256, 80.0, "a"), Decoded(256, 88.0, "a"))
    made._speed(Decoded(1, None, "a"), Decoded(256, 88.0, "a"))
    assert made.values["speed"] == pytest.approx([0.05, -0.1])


def test_what_is_told_names_what_was_missed() -> None:
    made = cost(core=[0.2], panel=[0.07], start=[0.6, 0.7])
    made.replies.append((Decoded(40, 80.0, "a"), Decoded(40, 76.0, "b")))
    text = table.told(made)
    assert "held: 2 of 3; not: of that, the panel (paced)" in text
    for words in ("built-in", "NOT EQUAL", "fewer than 64", "80.0 tok/s, the app 76.0", "stand-in"):
        assert words in text
    held = table.told(cost(start=[0.7]))
    assert "held: 1 of 1\n" in held
    assert "stand-in" not in held


def test_a_report_has_every_value_and_no_text() -> None:
    made = cost(keys=[0.02, 0.03])
    made.keys["depth"] = [0.02]
    made.replies.append((Decoded(99, 80.0, "secret"), Decoded(99, 76.0, "secret")))
    found: dict[str, Any] = table.document(made, ["macspec"], 1.0)
    assert found["measures"]["keys"]["values"] == [0.02, 0.03]
    assert found["measures"]["keys"]["held"] is True
    assert found["keys"] == {"depth": [0.02]}
    assert "p95: depth 20 ms" in table.told(made)
    assert found["replies"][0]["equal"] is True
    assert found["complete"] is False
    assert "secret" not in str(found)


def test_late_is_what_most_do_not_exceed() -> None:
    assert late([0.5]) == 0.5
    assert late([n / 100 for n in range(101)]) == pytest.approx(0.95)


def test_two_looks_are_as_bad_as_the_worse_one() -> None:
    both = worse(Look(1.0, 0.5, 0.2, 0.01, True), Look(3.0, 0.5, 0.1, 0.02, False))
    assert both == Look(4.0, 1.0, 0.2, 0.02, False)
    assert both.share == 0.25
    assert Look(0.0, 0.0, 0.0, 0.0, False).share == 0.0


def test_options_of_a_pair() -> None:
    shown = ["--context", "64", "--kv-bits", "4", "--trust-remote-code"]
    for given, expected in (
        ([], ["--target", "built-in"]),
        (["--target", "big"], ["--target", "big", "--draft", "none"]),
        (["--target", "big", "--draft", "small", *shown],
         ["--target", "big", "--draft", "small", *shown]),
    ):  # fmt: skip
        assert models_of(parser().parse_args(given)) == expected


def test_made_up_conversations_are_whole(tmp_path: Path) -> None:
    turns = conversation(6, 500)
    assert [role for role, _ in turns] == ["user", "assistant"] * 3
    assert all(len(text) == 500 for role, text in turns if role == "assistant")
    assert sum(length for length, _ in spans_of(random.Random(1), turns[1][1])) == 500
    store = Store(tmp_path / "chats.db")
    thread = store.thread(keep(store, turns, "target"))
    assert [(it.role, it.text) for it in thread] == turns
    assert thread[1].metadata is not None
    assert thread[1].metadata.stats is not None
    assert thread[1].metadata.stats["decode_tokens_per_s"] == pytest.approx(30)
    store.close()


@pytest.mark.parametrize("line", [False, True])
def test_a_paced_reply_is_the_text_that_was_wished_for(line: bool) -> None:
    engine, wish = PacedEngine(), Wish(300, 1e6, line=line)
    request = ReplyRequest(({"role": "user", "content": wish.prompt()},))
    events = list(engine.reply(request))
    texts = [event for event in events if isinstance(event, Text)]
    rounds = [event for event in events if isinstance(event, Round)]
    said = "".join(text.delta for text in texts)
    assert said == wish.text()
    assert len(said) == 300
    assert said.endswith(END)
    assert ("\n" in said) is not line
    assert isinstance(events[0], Prefilled)
    assert all(sum(n for n, _ in text.spans) == len(text.delta) for text in texts)
    assert [len(round.tokens) for round in rounds[: len(ROUNDS)]] == list(ROUNDS)
    finished = engine.stop()
    assert (finished.reason, finished.text) == ("end", said)
    assert finished.stats.tokens == sum(len(round.tokens) for round in rounds)


def test_a_paced_engine_says_nothing_else() -> None:
    engine = PacedEngine()
    with pytest.raises(BadOptionError, match="wish"):
        list(engine.reply(ReplyRequest(({"role": "user", "content": "Hello"},))))
    engine.tune({"depth": 5, "sampling": {"temperature": 0.0}})
    assert engine.tune({"method": "off"}).depth == 5
    assert engine.status().tuning.sampling == {"temperature": 0.0}
