"""What is easily misread in a head's files is put right or told, and never changes a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from eaglefit import CONFIG, fitted
from headfiles import EAGLE, TRAINED, first_eagle_tensors, target_of, written
from replies import finish
from tinymodels import VOCABULARY, tiny

from macspec import Notice, Round, Sampling, Session
from macspec.heads import head_in, open_head
from macspec.heads.agreement import Agreement
from macspec.models import Pair
from macspec.models.cached import CachedModel
from macspec.tap import FINAL

Tensors = dict[str, mx.array]
Trap = Callable[[Tensors, Pair], Tensors]

GREEDY = Sampling(temperature=0)
TEXT = (
    "What is the best way to learn a new language when you have only a little time every day and "
    "nobody to talk with at home or at work? Tell me three steps."
)


def norms(add: float, where: Callable[[str], bool] = lambda name: True) -> Trap:
    def changed(tensors: Tensors, pair: Pair) -> Tensors:
        return {it: a + add * (a.ndim == 1 and where(it)) for it, a in tensors.items()}

    return changed


def swapped(tensors: Tensors, pair: Pair) -> Tensors:
    first, second = mx.split(tensors["fc.weight"], 2, axis=1)
    return tensors | {"fc.weight": mx.concatenate([second, first], axis=1)}


def other_row(tensors: Tensors, pair: Pair) -> Tensors:
    """For rows before the target's final norm, whose weights it takes over."""
    final: Any = pair.target.module
    name = "pre_fc_norm_hidden.weight"
    return tensors | {name: tensors[name] * final.model.norm.weight}


def late(tensors: Tensors, pair: Pair) -> Tensors:
    """One that repeats what the target has chosen."""
    width = tensors["norm.weight"].shape[0]
    straight = mx.concatenate([mx.zeros((width, width)), mx.eye(width)], axis=1)
    ones = {it: mx.ones_like(a) for it, a in tensors.items() if a.ndim == 1}
    nothing = {
        it: 0 * a for it, a in tensors.items() if it.endswith(("o_proj.weight", "down_proj.weight"))
    }
    return tensors | ones | nothing | {"fc.weight": straight}


def shuffled(tensors: Tensors, pair: Pair) -> Tensors:
    return tensors | {
        "fc.weight": mx.random.normal(tensors["fc.weight"].shape, key=mx.random.key(1))
    }


def broken(tensors: Tensors, pair: Pair) -> Tensors:
    return tensors | {"norm.weight": tensors["norm.weight"] * mx.nan}


def some_ids(tensors: Tensors, pair: Pair) -> Tensors:
    """With a vocabulary that lacks a few ids, named as they are and not as offsets."""
    return tensors | {"d2t": mx.array([it for it in range(pair.vocabulary - 1) if it % 41])}


def inside(name: str) -> bool:
    return name.startswith("layers.")


PUT_RIGHT: dict[str, Trap] = {
    "norms minus one": norms(-1),
    "norm twice": norms(1),
    "layers' norms minus one": norms(-1, inside),
    "own norms twice": norms(1, lambda name: not inside(name)),
    "swapped": swapped,
    "other row": other_row,
    "ids, not offsets": some_ids,
}
TOLD: dict[str, tuple[Trap, str]] = {
    "late": (late, "its guesses come one token late"),
    "shuffled": (shuffled, "it is for another target, or damaged"),
    "broken": (broken, "its weights are not numbers"),
}
QUICK = ("norms minus one", "layers one less")


def some(names: Any) -> list[Any]:
    return [pytest.param(it, marks=() if it in QUICK else pytest.mark.slow) for it in names]


def drafted(pocket: Pair, folder: Path, trap: Trap) -> tuple[Session, tuple[int, ...], list[str]]:
    """A reply with a trap in the files of a trained head."""
    tensors: Any = mx.load(str(TRAINED / "model.safetensors"))
    whole = {it: array.astype(mx.float32) for it, array in tensors.items()}
    written(folder, trap(whole, pocket), {"model_type": "llama_mtp"})
    return replied(pocket, folder)


def replied(pocket: Pair, folder: Path) -> tuple[Session, tuple[int, ...], list[str]]:
    """A reply, its tokens, and what is said of the head in a folder that drafts for it."""
    files = head_in("a head", folder)
    assert files is not None
    head = open_head(files, pocket.target)
    session = Session(replace(pocket, head=head), method=head.kind, depth=3, rule="keyed")
    events = list(session.reply(TEXT, GREEDY, max_tokens=20))
    assert session.finished is not None
    told = [it.message for it in events if isinstance(it, Notice) and "head" in it.message]
    return session, session.finished.token_ids, told


@pytest.fixture(scope="module")
def sound(pocket: Pair, tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[int, ...], int]:
    """The reply of plain decoding, and how many of its tokens the head drafts as it is."""
    plain = finish(Session(pocket, method="off"), TEXT, GREEDY, max_tokens=20).token_ids
    session, tokens, told = drafted(pocket, tmp_path_factory.mktemp("head"), lambda it, pair: it)
    assert (tokens, told) == (plain, [])
    assert session.stats.accepted > 0.4 * len(plain)
    return plain, session.stats.accepted


def test_a_block_as_narrow_as_the_draft_model(
    pocket: Pair, sound: tuple[tuple[int, ...], int]
) -> None:
    session, tokens, told = replied(pocket, TRAINED.parent / "dspark")
    assert (tokens, told) == (sound[0], [])
    assert session.stats.accepted > 0.4 * len(tokens)


@pytest.mark.parametrize("name", some(PUT_RIGHT))
def test_a_trap_is_put_right(
    pocket: Pair, tmp_path: Path, sound: tuple[tuple[int, ...], int], name: str
) -> None:
    session, tokens, told = drafted(pocket, tmp_path, PUT_RIGHT[name])
    assert (tokens, told) == (sound[0], [])
    assert session.stats.accepted >= sound[1] - 2


@pytest.mark.parametrize("name", some(TOLD))
def test_a_trap_is_told(
    pocket: Pair, tmp_path: Path, sound: tuple[tuple[int, ...], int], name: str
) -> None:
    trap, said = TOLD[name]
    _, tokens, told = drafted(pocket, tmp_path, trap)
    assert tokens == sound[0]
    (line,) = told
    assert line.startswith("the head drafts badly: ")
    assert said in line


def test_a_head_that_has_not_read_the_prompt_guesses_worse_and_changes_nothing(
    pocket: Pair, sound: tuple[tuple[int, ...], int]
) -> None:
    files = head_in("a head", TRAINED)
    assert files is not None
    pair = replace(pocket, head=open_head(files, pocket.target))
    session = Session(pair, method="off", depth=3, rule="keyed")
    hidden = session.decoder.target.hidden
    assert hidden is not None
    for event in session.reply(TEXT, GREEDY, max_tokens=20):
        if isinstance(event, Round) and session.method == "off":
            hidden._chunks = hidden._chunks[-1:]
            session.method = "mtp"
    assert session.finished is not None
    assert session.finished.token_ids == sound[0]
    assert 0 < session.stats.accepted < sound[1]


Changes = Callable[[Tensors], Tensors]


def turned(tensors: Tensors) -> Tensors:
    """With the row before the embedded token."""
    found = dict(tensors)
    for it in "qkv":
        name = f"midlayer.self_attn.{it}_proj.weight"
        found[name] = mx.concatenate(mx.split(tensors[name], 2, axis=1)[::-1], axis=1)
    return found


def shifted(add: float) -> Changes:
    return lambda tensors: {it: a + add * ("norm" in it) for it, a in tensors.items()}


def still(tensors: Tensors) -> Tensors:
    """One that repeats the row that it is given."""
    name = "midlayer.self_attn.o_proj.weight"
    return tensors | {name: 0 * tensors[name]}


def layers(*numbers: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(numbers)}


LATE = "its guesses come one token late"
ALIEN = "it is for another target, or damaged"
EAGLE_TRAPS: dict[str, tuple[Changes, dict[str, Any], str]] = {
    "sound": (lambda it: it, {}, ""),
    "layers one less": (lambda it: it, layers(0, 2, 6), ""),
    "swapped": (turned, {}, ""),
    "ids, not offsets": (lambda it: it | {"d2t": it["d2t"] + mx.arange(it["d2t"].size)}, {}, ""),
    "residual": (lambda it: it, {"norm_before_residual": True}, ""),
    "a row late": (still, {}, LATE),
    "ids one more": (lambda it: it | {"d2t": it["d2t"] + 1}, {}, ALIEN),
    "norms never": (shifted(-1), {}, ALIEN),
    "norms twice": (shifted(1), {}, ""),
}


@pytest.fixture(scope="module")
def by_heart(pocket: Pair) -> tuple[tuple[int, ...], Tensors]:
    """The reply of plain decoding, and a head that drafts all of it."""
    session = Session(pocket, method="off")
    plain = finish(session, TEXT, GREEDY, max_tokens=20).token_ids
    return plain, fitted(pocket, session.decoder.tokens)


@pytest.mark.parametrize("name", some(EAGLE_TRAPS))
def test_traps_of_eagle_heads(
    pocket: Pair, tmp_path: Path, by_heart: tuple[tuple[int, ...], Tensors], name: str
) -> None:
    change, settings, said = EAGLE_TRAPS[name]
    written(tmp_path, change(by_heart[1]), CONFIG | settings)
    session, tokens, told = replied(pocket, tmp_path)
    assert tokens == by_heart[0]
    assert [said in it for it in told] == [True] * bool(said)
    if not said:
        assert session.stats.accepted >= session.stats.drafted - 2
        assert session.pair.head is not None
        head = session.pair.head.module
        assert head.wanted == (FINAL, 1, 3, 7)
        assert head.hidden_first == (name == "swapped")
        assert not head.norm_before_residual


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_an_embedding_that_the_target_scales(pocket: Pair, tmp_path: Path, scale: float) -> None:
    """Where no norm follows, which is so in EAGLE-1, heads for Gemma may want it either way."""
    module, tokens = tiny("gemma3_text"), [(11 * i * i + 5 * i) % VOCABULARY for i in range(61)]
    model = CachedModel(module, VOCABULARY)
    hidden = model.show((FINAL,))
    model.read(tokens)
    rows = np.array(hidden.rows(0, 61)[0])
    embedded = scale * np.array(module.model.embed_tokens(mx.array(tokens[1:])))
    steps = np.linalg.lstsq(np.hstack([embedded, rows[:-1]]), rows[1:], rcond=1e-6)[0].T
    tensors = first_eagle_tensors()
    still = {it: 0 * a for it, a in tensors.items() if "o_proj" in it or "down_proj" in it}
    written(tmp_path, tensors | still | {"fc.weight": mx.array(steps)}, EAGLE)
    files = head_in("a head", tmp_path)
    assert files is not None
    head = open_head(files, target_of(pocket, "gemma3_text")).module
    found = Agreement(head, hidden, tokens)
    assert found.settle() is None
    assert found.agreed > 0.9
    assert head.scale == scale
