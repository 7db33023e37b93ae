"""``macspec bench``: a measurement from the command line to its files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from macspec.assets import pocket
from macspec.bench import options as benchoptions
from macspec.bench import sweeps
from macspec.bench.costs import Costs
from macspec.bench.macspecarm import MacspecArm
from macspec.bench.options import BenchOptions
from macspec.cli.main import build_parser
from macspec.cli.options import fill
from macspec.session import Session
from macspec.store import GenerationMetadata, Store, store_path

SMALL = ["--workloads", "chat", "--tasks", "1", "--repeats", "1", "--max-tokens", "6", "--no-plot"]

GREEDY = ["--temperature", "0"]

SMALL_PAIR = [f"--{role}={pocket().draft}" for role in ("target", "draft")]
"""The built-in draft model in both roles: a tenth of the time."""

TEXT = "One two three four five six seven eight nine ten. " * 3

COSTS: Costs = {
    "passes": [[rows, 0, 1 + 0.1 * rows] for rows in (2, 3, 4, 5, 8, 16, 32)],
    "steps": {"draft": 0.1},
    "reading": {},
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Costs are known, and nothing is found at home."""
    monkeypatch.setattr("macspec.bench.run.measure_costs", lambda *_, **__: iter([COSTS]))
    monkeypatch.setattr(Session, "measure", lambda *_: iter(()))
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))


def options(*arguments: str) -> BenchOptions:
    """A command line as it was understood."""
    given = build_parser().parse_args(["bench", *arguments])
    given.settings = fill(given).config
    return BenchOptions(given)


def test_a_measurement(macspec: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    arms = ["--arms", "plain,auto,mlx-lm,mlx-lm-draft@2"]
    outcome = macspec("bench", *SMALL, *GREEDY, *arms, "--profile", "--out", str(out))
    assert outcome.status == 0
    text = outcome.out.decode()
    for words in ("built-in target", "temperature 0", "vs plain", "where the time went",
                  "tok/pass", "1/1", "waiting for the device"):  # fmt: skip
        assert words in text
    found = json.loads((out / "report.json").read_text())
    assert [it["arm"] for it in found["samples"]] == ["plain", "auto", "mlx-lm", "mlx-lm-draft@2"]
    assert found["ended"] == "all"
    assert (out / "report.md").read_text().startswith("# macspec bench")
    assert str(out / "report.json") in outcome.err


def test_ctrl_c_keeps_what_was_measured(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write, asked = MacspecArm.write, []

    def interrupted(self: MacspecArm, *given: Any) -> Any:
        asked.append(self.name)
        if len(asked) == 6:  # two warm up
            raise KeyboardInterrupt
        return write(self, *given)

    monkeypatch.setattr(MacspecArm, "write", interrupted)
    more = ["--arms", "plain,draft@2", "--repeats", "5", "--out", str(tmp_path / "a.json")]
    outcome = macspec("bench", *SMALL, *SMALL_PAIR, *GREEDY, *more)
    assert outcome.status == 130
    assert "INTERRUPTED (3 of 10 replies)" in outcome.out.decode()
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["ended"], len(found["samples"])) == ("interrupted", 3)


def test_ctrl_c_before_the_first_reply_writes_nothing(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[Costs]:
        raise KeyboardInterrupt

    monkeypatch.setattr("macspec.bench.run.measure_costs", interrupted)
    outcome = macspec("bench", *SMALL, "--out", str(tmp_path / "a.json"))
    assert outcome.status == 130
    assert "nothing was measured yet" in outcome.err
    assert not outcome.out
    assert not (tmp_path / "a.json").exists()


def test_a_failure_in_the_middle_keeps_what_was_measured(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from macspec.errors import ServerError

    write, asked = MacspecArm.write, []

    def broken(self: MacspecArm, *given: Any) -> Any:
        asked.append(self.name)
        if len(asked) == 4:
            raise ServerError("the server is gone")
        return write(self, *given)

    monkeypatch.setattr(MacspecArm, "write", broken)
    more = ["--arms", "plain,draft@2", "--repeats", "5", "--out", str(tmp_path / "a.json")]
    outcome = macspec("bench", *SMALL, *SMALL_PAIR, *GREEDY, *more)
    assert outcome.status == 2
    assert "the server is gone" in outcome.error
    assert len(json.loads((tmp_path / "a.json").read_text())["samples"]) == 1


def test_json_and_text_that_was_asked_for(macspec: Callable[..., Any], tmp_path: Path) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "Mail me at anna@example.org, please."}\n')
    more = ["--prompts", str(prompts), "--arms", "plain", "--json", "--with-text"]
    outcome = macspec("bench", *SMALL[2:], *GREEDY, *more)
    assert outcome.status == 0
    found = json.loads(outcome.out)
    asked = found["questions"][0]["prompt"][0]["content"]
    assert asked.startswith("Mail me at [mail]")
    assert "anna" not in outcome.out.decode()
    assert "reply" in found["samples"][0]
    (written,) = (tmp_path / "home" / "data" / "bench").glob("*/report.json")
    assert json.loads(written.read_text()) == found


def test_own_chats_once_more_and_nothing_of_them_in_the_report(
    macspec: Callable[..., Any], tmp_path: Path
) -> None:
    store = Store(store_path())
    chat = store.new_chat(system="", sampling={})
    asked = store.add(chat.id, None, "My cat is called Zebulon.", "user")
    reply = store.reply(chat.id, asked.id, GenerationMetadata())
    reply.append("What a lovely name.")
    reply.finish("end", None)
    store.close()
    out = tmp_path / "report.json"
    more = ["--replay", "--arms", "plain,ngram", "--out", str(out)]
    outcome = macspec("bench", *SMALL[4:], *SMALL_PAIR, *GREEDY, *more)
    assert outcome.status == 0
    found = json.loads(out.read_text())
    assert [it["source"] for it in found["questions"]] == ["replay"]
    assert all(it["digest"] is None for it in found["questions"])
    everything = "".join(path.read_text() for path in tmp_path.glob("report.*"))
    assert "Zebulon" not in everything + outcome.out.decode() + outcome.err
    assert "lovely" not in everything


def test_a_method_against_itself(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sweeps, "RUNS", 2)
    monkeypatch.setattr(benchoptions, "RUNS", 2)
    more = ["--null-test", "plain", "--json", "--out", str(tmp_path / "a.json")]
    outcome = macspec("bench", *SMALL, *SMALL_PAIR, *GREEDY, *more, "--repeats", "7")
    found = json.loads(outcome.out)
    (held,) = found["aa"]
    assert held["runs"] == 2
    assert len(found["samples"]) == 2 * 2 * 7
    assert found["baseline"] == "plain"


def test_a_sweep(macspec: Callable[..., Any], tmp_path: Path) -> None:
    more = ["--sweep", "kv-bits", "--out", str(tmp_path / "a.json")]
    outcome = macspec("bench", *SMALL, *SMALL_PAIR, *GREEDY, *more)
    assert outcome.status == 0
    assert "times plain" in outcome.out.decode()
    found = json.loads((tmp_path / "a.json").read_text())
    plain = [it["x"] for it in found["sweep"]["points"] if it["series"] == "plain"]
    assert plain == [16, 8, 4, 2]
    # Fewer bits are another target: its text is not compared.
    assert all(not it["equality"]["compared"] for it in found["cells"] if "+kv" in it["arm"])


def test_two_reports_side_by_side(macspec: Callable[..., Any], tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path in paths:
        assert (
            macspec(
                "bench", *SMALL, *SMALL_PAIR, *GREEDY, "--arms", "plain,ngram", "--out", path
            ).status
            == 0
        )
    outcome = macspec("bench", "--compare", *paths)
    assert outcome.status == 0
    assert "no intervals disagree" in outcome.out.decode()


def test_without_matplotlib_there_are_tables(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "macspec.bench.plots", None)
    more = ["--arms", "plain", "--out", str(tmp_path / "a.json")]
    outcome = macspec("bench", *SMALL[:-1], *SMALL_PAIR, *GREEDY, *more)
    assert outcome.status == 0
    assert "no pictures without matplotlib" in outcome.err
    assert "temperature 0" in outcome.out.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arms", "plain,fast"], "there is no arm 'fast'; there are plain"),
        (["--arms", "plain,plain"], "the arm plain is named twice"),
        (["--arms", "plain,,auto"], "not a list of names"),
        (["--arms", "draft@40"], "a depth is 0 to 32"),
        (["--arms", "auto", "--baseline", "plain"], "the baseline plain is not among the arms"),
        (["--arms", "plain", "--sweep", "depth"], "--arms and --sweep do not go together"),
        (
            ["--null-test", "plain", "--sweep", "depth"],
            "--sweep and --null-test do not go together",
        ),
        (
            ["--null-test", "plain", "--baseline", "plain"],
            "--baseline does not go with --null-test",
        ),
        (["--null-test", "plain#2"], "name the arm without a number"),
        (["--sweep", "speed"], "invalid choice"),
        (["--workloads", "chess"], "there is no workload 'chess'"),
        (["--workloads", "chat", "--replay"], "not allowed with"),
        (["--prompts", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--replay"], "there are no stored chats"),
        (["--temperature", "0,warm"], "not a list of temperatures"),
        (["--temperature", "0.5,0.5"], "each once"),
        (["--minutes", "0"], "not a number of minutes"),
        (["--cool-down", "-1"], "not a number of seconds"),
        (["--repeats", "0"], "whole number"),
        (["--server", "example.org:80"], "not an address of this machine"),
        (["--server", "127.0.0.1:9"], "no server answers"),
        (["--server-command", "serve"], "need --server ADDRESS"),
        (
            ["--server", "127.0.0.1:9", "--null-test", "plain"],
            "--server does not go",
        ),
        (["--arms", "server"], "the arm server needs --server ADDRESS"),
        (["--compare", "a.json", "b.json"], "cannot read a.json"),
        (["--out", "/dev/null/x"], "choose another place with --out"),
    ],
)
def test_every_refusal_is_one_line(
    macspec: Callable[..., Any], arguments: list[str], words: str
) -> None:
    outcome = macspec("bench", *SMALL_PAIR, *arguments)
    assert outcome.status == 2
    assert words in outcome.error
    assert not outcome.out


def test_a_target_without_a_chat_template_needs_texts(
    macspec: Callable[..., Any], shared: Path
) -> None:
    folder = str(shared / "data" / "models" / "stories260K")
    outcome = macspec("bench", "--target", folder, *SMALL)
    assert outcome.status == 2
    assert "has no chat template" in outcome.error


def test_a_short_run_has_an_end() -> None:
    quick = options("--quick")
    assert quick.protocol.minutes is not None
    assert quick.protocol.minutes < 2
    assert quick.longest == benchoptions.QUICK_TOKENS
    assert options("--quick", "--max-tokens", "99").longest == 99
    assert options().protocol.minutes is None
    assert options().protocol.temperatures == (0.0, 0.7, 1.0)
    assert options("--quick", "--minutes", "5").protocol.minutes == 5


def test_options_reach_the_protocol() -> None:
    given = options("--ignore-end", "--cool-down", "3", "--seed", "7", "--temperature", "0.5")
    protocol = given.protocol
    assert not protocol.ends
    assert (protocol.cool_down, protocol.seed, protocol.temperatures) == (3.0, 7, (0.5,))
    for flag in ("--null-test", "--aa"):
        assert options(flag, "auto", "--repeats", "2").protocol.repeats == 2 * sweeps.RUNS


def test_forced_answers_go_beyond_what_the_target_was_made_for(
    macspec: Callable[..., Any], tmp_path: Path
) -> None:
    for role in ("target", "draft"):
        shutil.copytree(pocket().draft, tmp_path / role)
        config = tmp_path / role / "config.json"
        short = {"max_position_embeddings": 32}
        config.write_text(json.dumps(json.loads(config.read_text()) | short))
    pair = ["--target", str(tmp_path / "target"), "--draft", str(tmp_path / "draft")]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "1", "prompt": "Say it: " + TEXT, "answer": TEXT}))
    asked = ["--prompts", str(tasks), "--context", "400", "--repeats", "1", "--no-plot", *GREEDY]
    out = tmp_path / "out.json"

    outcome = macspec("bench", *pair, *asked, "--arms", "plain,auto", "--out", str(out))
    assert outcome.status == 2
    assert "--context 400" in outcome.err
    assert "supports at most 32 positions" in outcome.err

    outcome = macspec(
        "bench", *pair, *asked, "--forced", "--arms", "plain,auto,draft@2", "--out", str(out)
    )
    assert outcome.status == 0
    assert "supports 32 positions: from there to 400 only forced answers are decoded" in outcome.err
    found = json.loads(out.read_text())
    plain, auto, draft = found["samples"]
    assert plain["forced"]
    assert plain["prompt_tokens"] > 32
    assert plain["tokens"] == auto["tokens"] == draft["tokens"] > 32
    assert auto["passes"] < plain["passes"] == draft["passes"]
