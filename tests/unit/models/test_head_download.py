"""A head's tensors from a checkpoint on the hub, by ranges: whole, broken, lied about, refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from fakehub import Hub, serving
from test_lying_hub import answer

from macspec.errors import MacspecError, ModelBrokenError, ModelNotFoundError
from macspec.heads import head_in
from macspec.models import download, headpull
from macspec.models.headpull import pull_head
from macspec.models.hubcache import cached_models
from macspec.models.progress import Listed, Pulled, Retrying
from macspec.models.sidecars import kept_heads, made_for, made_for_another

NAME = "Owner/Model-1B"
BEFORE, WITH, AFTER = (f"model-0000{it}-of-00003.safetensors" for it in (1, 2, 3))
WIDTH = 48
CONFIG = {"num_hidden_layers": 3, "text_config": {"vocab_size": 70}}


def saved(folder: Path, name: str, tensors: dict[str, mx.array]) -> bytes:
    mx.save_safetensors(str(folder / name), tensors)
    return (folder / name).read_bytes()


def drawn(name: str, *shape: int) -> tuple[str, mx.array]:
    return name, mx.random.normal(shape, key=mx.random.key(len(name))).astype(mx.bfloat16)


@pytest.fixture
def head() -> dict[str, mx.array]:
    return dict(
        [
            drawn("mtp.fc.weight", WIDTH, 2 * WIDTH),
            drawn("mtp.pre_fc_norm_hidden.weight", WIDTH),
            drawn("mtp.pre_fc_norm_embedding.weight", WIDTH),
            drawn("mtp.norm.weight", WIDTH),
            drawn("mtp.layers.0.mlp.up_proj.weight", 4 * WIDTH, WIDTH),
        ]
    )


@pytest.fixture
def hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, mx.array]
) -> Iterator[Hub]:
    """A checkpoint of three files; two of them hold parts of a head."""
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 3)
    monkeypatch.setattr(headpull, "CHUNK", 4096)
    monkeypatch.setattr(download, "INTERVAL", 0.0)
    monkeypatch.setenv("MACSPEC_HOME", str(tmp_path / "home"))
    backbone = [dict([drawn(f"model.layers.{it}.mlp.up_proj.weight", 400, 200)]) for it in range(3)]
    parts = list(head.items())
    shards = {
        BEFORE: backbone[0],
        WITH: {**backbone[1], **dict(parts[:2])},
        AFTER: {**dict(parts[2:]), **backbone[2]},
    }
    files = {name: saved(tmp_path, name, tensors) for name, tensors in shards.items()}
    where = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": where}).encode()
    files["config.json"] = json.dumps(CONFIG).encode()
    side = {it.removeprefix("mtp."): array for it, array in head.items()}
    sidecar = {
        "model.safetensors": saved(tmp_path, "side.safetensors", side),
        "config.json": b'{"model_type": "qwen3_5_mtp"}',
        "tokenizer.json": b"{}",
    }
    served = Hub({NAME: files, "owner/sidecar": sidecar})
    with serving(served, tmp_path / "cache", monkeypatch):
        yield served


def weights(folder: Path) -> dict[str, mx.array]:
    loaded: Any = mx.load(str(folder / "model.safetensors"))
    return dict(loaded)


def assert_whole(folder: Path, head: dict[str, mx.array]) -> None:
    loaded = weights(folder)
    assert loaded.keys() == head.keys()
    assert all(mx.array_equal(loaded[it], head[it]).item() for it in head)


def test_only_the_tensors_of_the_head_are_sent(hub: Hub, head: dict[str, mx.array]) -> None:
    listed, *_, pulled = pull_head(NAME)
    assert isinstance(listed, Listed)
    assert isinstance(pulled, Pulled)
    folder = Path(pulled.folder)
    assert_whole(folder, head)
    own = sum(it.nbytes for it in head.values())
    assert own < listed.total == pulled.total < own + 1000
    assert hub.sent < listed.total + 2000
    assert all(path != BEFORE for _, path, _ in hub.asked)
    assert kept_heads() == [folder]
    files = head_in(str(folder), folder)
    assert files is not None
    assert (files.kind, made_for(files)) == ("mtp", NAME)
    assert files.config["vocab_size"] == 70
    assert made_for_another(files, "others/Model-1B-4bit") is None
    assert made_for_another(files, "others/Model-2B-4bit") == NAME
    sent = hub.sent
    again, *_ = pull_head(NAME)
    assert isinstance(again, Listed)
    assert again.present == again.total
    assert hub.sent < sent + 2000
    assert cached_models() == []


def test_a_repository_that_is_a_head_comes_as_any_other(hub: Hub) -> None:
    *_, pulled = pull_head("owner/sidecar")
    assert isinstance(pulled, Pulled)
    files = head_in("owner/sidecar", Path(pulled.folder))
    assert files is not None
    assert files.kind == "mtp"
    assert [it.name for it in cached_models()] == ["owner/sidecar"]
    assert kept_heads() == []


def test_a_broken_connection_is_taken_up_where_it_broke(
    hub: Hub, head: dict[str, mx.array]
) -> None:
    hub.breaks = [8, 3, *[10**6] * 3, 100, 0, 5000]
    *events, pulled = pull_head(NAME)
    assert isinstance(pulled, Pulled)
    assert sum(isinstance(it, Retrying) for it in events) >= 4
    assert_whole(Path(pulled.folder), head)
    hub.breaks = []
    assert hub.sent < pulled.total + 2 * 4096 + 2000


def test_the_next_run_resumes_the_last_one(hub: Hub, head: dict[str, mx.array]) -> None:
    events = pull_head(NAME)
    before = next(it.done for it in events if getattr(it, "done", 0) > 10_000)
    events.close()
    listed, *_, pulled = pull_head(NAME)
    assert isinstance(listed, Listed)
    assert isinstance(pulled, Pulled)
    assert before <= listed.present < listed.total
    assert_whole(Path(pulled.folder), head)


def ranged(change: Callable[[int, int, int], str], cut: int = 0) -> Any:
    """Answers with a range in another way: its header, and bytes more or fewer."""

    def lie(handler: BaseHTTPRequestHandler, kind: str) -> bool:
        wanted = handler.headers.get("Range")
        if kind != "file" or wanted is None:
            return False
        first, last = map(int, wanted.removeprefix("bytes=").split("-"))
        body = bytes(max(last + 1 - first + cut, 0))
        answer(handler, body, 206, Content_Range=change(first, last, 0))
        return True

    return lie


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda hub: setattr(hub, "ranges", False), ModelNotFoundError, "did not send a part of"),
        (
            lambda hub: setattr(hub, "lie", ranged(lambda a, b, c: f"bytes {a}-{b}/999")),
            ModelNotFoundError,
            "another part of",
        ),
        (
            lambda hub: hub.models[NAME].update({"config.json": b"[" * 5000}),
            ModelNotFoundError,
            "no JSON",
        ),
        (
            lambda hub: hub.models[NAME].update(
                {"model.safetensors.index.json": json.dumps({"weight_map": {}}).encode()}
                | dict.fromkeys((BEFORE, WITH, AFTER), b"\xff" * 5000)
            ),
            ModelBrokenError,
            "is truncated",
        ),
        (
            lambda hub: hub.models[NAME].update(
                {WITH: hub.models[NAME][BEFORE], AFTER: hub.models[NAME][BEFORE]}
            ),
            ModelNotFoundError,
            "is not where its index says",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    hub: Hub, spoil: Callable[[Hub], None], error: type[MacspecError], says: str
) -> None:
    spoil(hub)
    with pytest.raises(error, match=says):
        list(pull_head(NAME))
    assert kept_heads() == []
    assert hub.sent < 10_000 or not hub.ranges


def test_another_file_behind_a_redirect_is_refused(hub: Hub) -> None:
    def lie(handler: BaseHTTPRequestHandler, kind: str) -> bool:
        if kind == "file" and WITH in handler.path and "again" not in handler.path:
            tag = {"X-Linked-ETag": '"' + "0" * 64 + '"'}
            answer(handler, b"", 302, Location=f"{handler.path}?again", **tag)
            return True
        return False

    hub.lie = lie
    with pytest.raises(ModelNotFoundError, match="another file than it listed"):
        list(pull_head(NAME))


def test_a_checkpoint_without_a_head_says_so(hub: Hub) -> None:
    hub.models[NAME]["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"model.layers.0.mlp.up_proj.weight": BEFORE}}
    ).encode()
    with pytest.raises(ModelBrokenError, match="has no head that macspec can use"):
        list(pull_head(NAME))
