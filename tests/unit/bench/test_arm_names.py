"""Names of arms: what each stands for, and what is refused."""

from __future__ import annotations

import pytest

from macspec.bench.arms import ArmFactory, ArmName
from macspec.bench.macspecarm import ConcurrentArm, MacspecArm
from macspec.bench.mlxlm import MlxLmArm
from macspec.errors import BadOptionError
from macspec.models import Pair


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("plain", {"method": "off", "keyed": True, "usual": True}),
        ("auto", {"method": "auto", "depth": "auto", "rule": "block", "keyed": False}),
        ("draft@4:keyed", {"method": "draft", "depth": 4, "rule": "keyed", "keyed": True}),
        ("draft@0", {"depth": 0}),
        ("ngram@8", {"method": "ngram", "depth": 8}),
        ("mlx-lm", {"method": "mlx-lm"}),
        ("mlx-lm-draft", {"method": "mlx-lm-draft", "depth": "auto"}),
        ("mlx-lm-draft@3", {"depth": 3, "keyed": False}),
        ("server", {"method": "server"}),
        ("auto+kv8", {"kv_bits": 8, "usual": False}),
        ("draft+draft4", {"draft_bits": 4, "usual": False}),
        ("auto", {"trees": True}),
        ("auto:keyed+chains", {"rule": "keyed", "trees": False, "usual": True}),
        ("draft@4+chains+kv8/2", {"trees": False, "kv_bits": 8, "at_once": 2}),
        ("auto/4", {"at_once": 4, "usual": True}),
        ("plain#2", {"method": "off"}),
        (" auto ", {"text": "auto"}),
    ],
)
def test_what_a_name_stands_for(text: str, fields: dict[str, object]) -> None:
    name = ArmName.parse(text)
    assert {key: getattr(name, key) for key in fields} == fields


@pytest.mark.parametrize(
    "text",
    ["", "off", "fast", "plain@3", "mlx-lm@2", "auto:best", "mlx-lm:keyed", "server@2", "auto+kv3",
     "mlx-lm-draft@auto", "plain+draft4", "server/2", "auto/12", "AUTO", "auto:keyed@4",
     "plain+chains", "ngram+chains", "mlx-lm+chains", "auto+chains:keyed"],
)  # fmt: skip
def test_there_is_no_such_arm(text: str) -> None:
    with pytest.raises(BadOptionError, match="there is no arm"):
        ArmName.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mlx-lm-draft@0", "1 to 32"),
        ("draft@33", "0 to 32"),
        ("auto/0", "at least one"),
    ],
)
def test_numbers_out_of_range(text: str, words: str) -> None:
    with pytest.raises(BadOptionError, match=words):
        ArmName.parse(text)


def test_the_arms_behind_the_names(pocket: Pair) -> None:
    workshop = ArmFactory(pocket)
    kinds = {
        "plain": MacspecArm,
        "draft@2:match": MacspecArm,
        "mlx-lm": MlxLmArm,
        "auto/2": ConcurrentArm,
    }
    for text, kind in kinds.items():
        arm = workshop.make(ArmName.parse(text))
        assert isinstance(arm, kind)
        assert arm.name == text
        arm.close()


def test_a_server_must_be_somewhere(pocket: Pair) -> None:
    with pytest.raises(BadOptionError, match="--server ADDRESS"):
        ArmFactory(pocket).make(ArmName.parse("server"))
