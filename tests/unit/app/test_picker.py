"""The models to choose from, and the pairs that words of ``/models`` name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from macspec.app.chat.offers import (
    ABSENT,
    BUILT_IN,
    HERE,
    INCOMPLETE,
    NONE,
    TYPED,
    named_pair,
    typed_offer,
)
from macspec.app.chat.picker import ModelPicker
from macspec.config.schema import Config
from macspec.errors import BadOptionError
from macspec.models.catalog import Entry, entry
from macspec.models.machine import GIB
from macspec.models.scan import FoundModel, OpenedModel, PairFit
from macspec.worker import PairChoice

OWN = {"name": "little", "target": "o/T", "draft": "o/D", "download": 2.0, "memory_8k": 3.0}


def found(name: str, *, missing: str | None = None) -> FoundModel:
    return FoundModel(name, f"/cache/{name}", 10**9, missing, "1")


@pytest.fixture
def pairs() -> ModelPicker:
    """Of a machine with 16 GB for models, where nothing was looked at yet."""
    it = ModelPicker(Config(pairs=(OWN,)), PairChoice())
    it.scan.limit = 16 * GIB
    return it


def look(pairs: ModelPicker, *models: FoundModel, whole: bool = True) -> None:
    pairs.scan.found = {it.name: it for it in models}
    pairs.scan.opened = {
        it.name: OpenedModel(it.name, 10**9, 8192, GIB, 8192, True)
        for it in models
        if it.missing is None
    }
    pairs.scan.listed, pairs.scan.complete = True, whole


def by_name(offers):
    return {it.name: it for it in offers}


def test_before_anything_is_known_there_is_the_catalogue(pairs):
    offers = pairs.targets()
    assert offers[0].where == BUILT_IN
    assert offers[0].current
    assert {it.where for it in offers[1:]} == {ABSENT}
    assert by_name(offers)["little"].facts == (
        "to download · 2.0 GB · needs 3.0 GB at context 8192 · fits · o/T + o/D"
    )
    assert by_name(offers)["qwen2.5-72b"].fits is False


def test_what_is_here_comes_before_what_is_not(pairs):
    look(pairs, found("z/last"), found("o/T"))
    names = [it.name for it in pairs.targets()]
    assert names[:3] == ["built-in", "o/T", "z/last"]
    assert "little" not in names


def test_the_best_pair_is_one_that_is_here(pairs):
    look(pairs)
    target, draft = pairs.best()
    assert target.where == ABSENT
    assert "Download" in (asked := pairs.question(target, draft))
    assert "Licence: " in asked
    look(pairs, found("a/alone"), found("o/T"), found("o/D"))
    pairs.scan.fits = {("o/T", "o/D"): PairFit("o/T", "o/D", None, 2 * GIB, 8192, True)}
    target, draft = pairs.best()
    assert (target.model, draft.model) == ("o/T", "o/D")
    assert pairs.question(target, draft).startswith("Use o/T with the draft model o/D? It is on")
    pairs.scan.limit = GIB // 2
    look(pairs)
    assert pairs.best() is None


def test_models_of_lm_studio_are_found(pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".lmstudio/models/owner/model"
    folder.mkdir(parents=True)
    (folder.parent / "empty").mkdir()
    (folder / "config.json").write_text("{}")
    assert str(folder) in pairs.folders


def test_a_download_that_is_not_finished_can_be_chosen_and_a_broken_folder_cannot(pairs):
    look(pairs, found("a/b", missing="its download is not finished"), found("/m", missing="broken"))
    offers = by_name(pairs.targets())
    assert offers["a/b"].where == INCOMPLETE
    assert offers["a/b"].usable
    assert offers["a/b"].absent
    assert offers["m (/)"].reason == "broken"


def test_drafts_in_order_of_what_is_known(pairs):
    look(pairs, *map(found, ("o/T", "x/good", "x/alien", "x/big", "x/same", "o/D")))
    pairs.scan.fits = {
        ("o/T", "x/good"): PairFit("o/T", "x/good", None, 2 * GIB, 8192, True),
        ("o/T", "x/alien"): PairFit(
            "o/T", "x/alien", "its vocabulary is another", None, 8192, None
        ),
        ("o/T", "o/D"): PairFit("o/T", "o/D", None, 3 * GIB, 8192, True),
        ("x/big", "o/T"): PairFit("x/big", "o/T", None, GIB, 8192, True),
    }
    target = by_name(pairs.targets())["o/T"]
    drafts = pairs.drafts(target)
    assert [it.name for it in drafts[:3]] == ["o/D", "x/good", "no draft model"]
    assert by_name(drafts)["x/alien"].reason == "its vocabulary is another"
    assert by_name(drafts)["x/big"].reason == "larger than the target"
    assert by_name(drafts)["x/same"].reason == "not smaller than the target"
    assert drafts[0].memory == 3 * GIB


def test_heads_are_drafts_and_no_targets(pairs):
    look(pairs, *map(found, ("o/T", "o/D", "x/T-MTP", "x/head")))
    for name in ("x/T-MTP", "x/head"):
        pairs.scan.opened[name] = OpenedModel(name, head="mtp", reason="a head")
    fit = PairFit("o/T", "x/T-MTP", None, 2 * GIB, 8192, True, "mtp")
    pairs.scan.fits = {
        ("o/T", "x/T-MTP"): fit,
        ("o/T", "x/head"): replace(fit, draft="x/head", made_for="x/Other"),
        ("o/T", "o/D"): PairFit("o/T", "o/D", None, 3 * GIB, 8192, True),
    }
    assert by_name(pairs.targets()).keys().isdisjoint({"x/T-MTP", "x/head"})
    target = by_name(pairs.targets())["o/T"]
    drafts = pairs.drafts(target)
    assert [it.name for it in drafts[:3]] == ["x/T-MTP", "o/D", "x/head"]
    assert [it.note for it in drafts[::2][:2]] == [
        "MTP head, compatible",
        "MTP head, made for x/Other",
    ]
    assert [it and it.model for it in pairs.best()] == ["o/T", "x/T-MTP"]
    pairs.scan.opened["o/T"] = replace(pairs.scan.opened["o/T"], brings="mtp")
    assert by_name(pairs.drafts(target))["no draft model"].note == "its MTP head drafts"


def test_a_head_of_the_catalogue_is_offered_and_set_up_first(pairs):
    head = {**OWN, "heads": {"mtp": "o/T-MTP"}, "least": 1, "uses": ["chat"]}
    pairs.known = (entry(head),)
    target = by_name(pairs.targets())["little"]
    drafts = pairs.drafts(target)
    assert [(it.name, it.where) for it in drafts[:2]] == [("o/T-MTP", ABSENT), ("o/D", ABSENT)]
    assert drafts[0].facts == "to download · MTP head, recommended in the catalogue"
    question = pairs.question(target, drafts[0])
    assert question.startswith("Download o/T and o/T-MTP from the Hugging Face hub?")
    assert "see huggingface.co/o/T-MTP" in question
    pairs.known = (entry({**head, "head_sizes": {"mtp": 0.131}}),)
    sized = pairs.drafts(target)[0]
    assert sized.facts.startswith("to download · 0.1 GB · MTP head")
    assert "and o/T-MTP (0.1 GB) from" in pairs.question(target, sized)
    pairs.known = (entry({**head, "heads": {"mtp": "raw/T"}}),)
    assert next(it.name for it in pairs.drafts(target)) == "o/D"


def test_while_nothing_is_compared_a_draft_is_not_refused(pairs):
    look(pairs, found("o/T"), found("x/y"), whole=False)
    target = by_name(pairs.targets())["o/T"]
    assert by_name(pairs.drafts(target))["x/y"].note == "not checked yet"
    assert by_name(pairs.drafts(target))["o/D"].where == ABSENT


def test_choice_and_what_has_to_be_fetched_for_it(pairs):
    target = by_name(pairs.targets())["little"]
    draft = by_name(pairs.drafts(target))["o/D"]
    assert pairs.choice(target.model, draft.model) == PairChoice("o/T", "o/D")
    assert pairs.absent(target, draft) == ["o/T", "o/D"]
    assert pairs.to_download(target, draft) == "o/T and o/D, about 2.0 GB"
    none = by_name(pairs.drafts(target))["no draft model"]
    assert none.where == NONE
    assert pairs.choice(target.model, none.model) == PairChoice("o/T")
    assert pairs.to_download(target, none) == "o/T"


def test_filtering_by_the_names_of_models_and_pairs(pairs):
    look(pairs, found("o/T"))
    assert [it.name for it in pairs.targets("LITTLE")] == ["o/T"]
    assert {it.name for it in pairs.targets("coder-3b")} == {"qwen2.5-coder-3b"}


def test_what_is_typed(pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert typed_offer("mine").model == str(tmp_path / "mine")
    assert typed_offer("a/b").where == TYPED
    assert typed_offer("a/b").absent
    for text in ("word", "a/b/c", "a/"):
        assert typed_offer(text) is None
    for text in ("/nowhere", "./no", "~/no", "/b"):
        assert typed_offer(text).reason == "there is no such folder"
    assert "no config.json" in typed_offer("mine").reason
    assert [it.where for it in pairs.targets("new/model")] == [TYPED]
    look(pairs, found("new/model"))
    assert [it.where for it in pairs.targets("new/model")] == [HERE]


def test_names_for_completion(pairs):
    look(pairs, found("x/y"), found("o/T"))
    names = [name for name, _ in pairs.names()]
    assert names[:3] == ["built-in", "little", "x/y"]
    assert pairs.asked("little") == PairChoice("o/T", "o/D")


KNOWN = (Entry("qwen3-4b", "owner/T-4bit", "owner/D-4bit"), Entry("lonely", "owner/Alone"))


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("built-in", (None, None)),
        ("built-in built-in", (None, "built-in")),
        ("qwen3-4b", ("owner/T-4bit", "owner/D-4bit")),
        ("qwen3-4b none", ("owner/T-4bit", None)),
        ("qwen3-4b other/draft", ("owner/T-4bit", "other/draft")),
        ("lonely", ("owner/Alone", None)),
        ("a/b", ("a/b", None)),
        ("a/b c/d", ("a/b", "c/d")),
        ("'/models/my target' '/models/my draft'", ("/models/my target", "/models/my draft")),
    ],
)
def test_named_pairs(words, pair):
    assert named_pair(words, KNOWN) == pair


def test_a_folder_in_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_pair("~/t ~/d", KNOWN) == (f"{tmp_path}/t", f"{tmp_path}/d")


def test_a_folder_in_the_current_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert named_pair("mine", KNOWN) == ("mine", None)


@pytest.mark.parametrize("words", ["", "  ", "a/b c/d e/f", "'open"])
def test_too_few_or_many_words(words):
    with pytest.raises(BadOptionError, match="name a pair"):
        named_pair(words, KNOWN)


def test_an_unknown_name_has_a_near_one():
    with pytest.raises(BadOptionError, match="did you mean qwen3-4b"):
        named_pair("qwen3-4B", KNOWN)
