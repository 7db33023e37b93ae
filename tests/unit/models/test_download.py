"""Downloads from a hub on the loopback interface: whole, broken, damaged, refused, cancelled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakehub import COMMIT, Hub, checksum, serving
from huggingface_hub import constants

from macspec.errors import MacspecError, ModelBrokenError, ModelNotFoundError
from macspec.models import download
from macspec.models.download import pull
from macspec.models.files import locate
from macspec.models.hubcache import cached_folder, cached_models, remove
from macspec.models.progress import Listed, Progress, Pulled, Retrying

NAME = "owner/draft"
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(copy, tmp_path, monkeypatch) -> Iterator[Hub]:
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 8)
    served = Hub()
    served.add(NAME, copy("draft", "draft"))
    served.add("owner/target", copy("target", "target"))
    with serving(served, tmp_path / "cache", monkeypatch):
        yield served


@pytest.fixture
def small(monkeypatch) -> None:
    """Small steps, each of them reported."""
    monkeypatch.setattr(download, "CHUNK", 64 * 1024)
    monkeypatch.setattr(download, "INTERVAL", 0.0)


def partials(cache: Path) -> list[Path]:
    return list(cache.rglob("*.incomplete"))


def test_a_model_comes_whole(hub, tmp_path, small):
    events = list(pull([NAME]))
    first, *steps, last = events
    assert first == Listed((NAME,), hub.size(NAME), 0, first.free, (None,))
    assert last == Pulled(NAME, last.folder, hub.size(NAME))
    assert all(isinstance(step, Progress) and step.rate >= 0 for step in steps)
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == steps[-1].total == hub.size(NAME)
    assert len(done) > len(hub.models[NAME])
    for name, data in hub.models[NAME].items():
        assert (Path(last.folder) / name).read_bytes() == data
    assert not partials(tmp_path)


def test_what_was_pulled_is_found_without_the_network(hub, monkeypatch):
    folder = Path(list(pull([NAME]))[-1].folder)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert locate(NAME) == locate(f"{NAME}@{COMMIT}") == cached_folder(NAME) == folder


def test_nothing_is_fetched_twice(hub):
    list(pull([NAME]))
    sent = hub.sent
    listed, *_, pulled = pull([NAME])
    assert listed.present == listed.total
    assert isinstance(pulled, Pulled)
    assert hub.sent == sent


def test_a_pair_is_listed_as_one(hub):
    events = list(pull([NAME, "owner/target", NAME]))
    assert events[0].models == (NAME, "owner/target")
    assert events[0].total == hub.size(NAME) + hub.size("owner/target")
    assert [event.model for event in events if isinstance(event, Pulled)] == list(events[0].models)


def test_a_broken_connection_is_taken_up_where_it_broke(hub, small):
    size = len(hub.models[NAME][WEIGHTS])
    hub.breaks = [200_000, 300_000, 0, 0]
    events = list(pull([NAME]))
    assert sum(isinstance(event, Retrying) for event in events) == 4
    assert isinstance(events[-1], Pulled)
    ranges = [wanted for method, path, wanted in hub.asked if path == WEIGHTS and method == "GET"]
    starts = [int(wanted[6:-1]) for wanted in ranges if wanted]
    assert ranges[0] is None
    assert starts == sorted(starts)
    assert 0 < starts[0] <= 200_000 < starts[-1] <= 500_000
    # What a broken chunk had brought is asked for again, and no more than that.
    assert size <= hub.sent < size + 2 * download.CHUNK


def test_a_passing_failure_of_the_server_is_waited_out(hub):
    hub.statuses = [503, 429]
    events = list(pull([NAME]))
    assert [event.seconds for event in events if isinstance(event, Retrying)] == [0.0, 0.0]
    assert isinstance(events[-1], Pulled)


def test_a_server_that_stays_away_ends_it_and_the_next_time_goes_on(
    hub, tmp_path, small, monkeypatch
):
    monkeypatch.setattr(download, "PAUSES", (0.0, 0.0))
    hub.breaks = [300_000] + [0] * 3
    with pytest.raises(
        ModelNotFoundError, match=r"broke while downloading owner/draft .* to resume"
    ):
        list(pull([NAME]))
    (part,) = partials(tmp_path)
    kept = part.stat().st_size
    assert 0 < kept <= 300_000
    assert "is incomplete" in (cached_models()[0].missing or "")
    listed, *_, pulled = pull([NAME])
    assert listed.present >= kept
    assert isinstance(pulled, Pulled)
    assert hub.sent < len(hub.models[NAME][WEIGHTS]) + download.CHUNK


def test_a_server_without_ranges_starts_anew(hub, small):
    hub.breaks, hub.ranges = [200_000], False
    assert isinstance(list(pull([NAME]))[-1], Pulled)


def test_damaged_weights_are_thrown_away(hub, tmp_path):
    hub.lies = True
    with pytest.raises(ModelBrokenError, match=f"{WEIGHTS} of {NAME} arrived damaged"):
        list(pull([NAME]))
    assert all(part.stat().st_size == 0 for part in partials(tmp_path))
    hub.lies = False
    assert isinstance(list(pull([NAME]))[-1], Pulled)


def test_a_damaged_part_is_noticed(hub, tmp_path, small):
    blobs = tmp_path / "cache" / "models--owner--draft" / "blobs"
    blobs.mkdir(parents=True)
    weights = hub.models[NAME][WEIGHTS]
    (blobs / f"{checksum(weights)}.incomplete").write_bytes(b"\0" * 100_000)
    with pytest.raises(ModelBrokenError, match="checksum is not the hub's"):
        list(pull([NAME]))
    assert isinstance(list(pull([NAME]))[-1], Pulled)


def test_closing_keeps_what_arrived(hub, tmp_path, small):
    events = pull([NAME])
    next(event for event in events if isinstance(event, Progress) and event.file == WEIGHTS)
    events.close()
    (part,) = partials(tmp_path)
    assert part.stat().st_size > 0
    assert isinstance(list(pull([NAME]))[-1], Pulled)


def test_one_download_at_a_time(hub, small):
    first = pull([NAME])
    next(event for event in first if isinstance(event, Progress) and event.file == WEIGHTS)
    with pytest.raises(ModelNotFoundError, match="another macspec is downloading owner/draft"):
        list(pull([NAME]))
    assert isinstance(list(first)[-1], Pulled)


def test_the_disk_is_checked_first(hub, monkeypatch):
    room = hub.size(NAME) + download.RESERVE
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=room - 1))
    with pytest.raises(ModelNotFoundError, match=r"to download, but only .* is free in .*HF_HOME"):
        list(pull([NAME]))
    assert hub.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=room))
    assert isinstance(list(pull([NAME]))[-1], Pulled)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "GatedRepo", "is gated: accept its licence"),
        (404, "RepoNotFound", "no such model on the Hugging Face hub"),
        (401, "", "hf auth login"),
        (429, "", "limits requests"),
        (500, "", "returned 500"),
    ],
)
def test_refusals_are_one_line(hub, monkeypatch, status, code, says):
    hub.refuses[NAME] = (status, code)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with pytest.raises(MacspecError, match=says) as caught:
        list(pull([NAME]))
    assert "\n" not in str(caught.value)


def test_what_does_not_exist(hub):
    with pytest.raises(ModelNotFoundError, match="has no revision v9"):
        list(pull([f"{NAME}@v9"]))
    with pytest.raises(ModelNotFoundError, match="no such model"):
        list(pull(["owner/absent"]))
    hub.models["owner/gguf"] = {"model-Q8_0.gguf": b"", "config.json": b"{}"}
    with pytest.raises(ModelBrokenError, match="is a GGUF model"):
        list(pull(["owner/gguf"]))


def test_nobody_there(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFoundError, match="cannot be reached"):
        list(pull([NAME]))


def test_offline(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE is set"):
        list(pull([NAME]))


def test_removing_frees_it_all(hub, tmp_path):
    list(pull([NAME]))
    assert [(model.name, model.missing) for model in cached_models()] == [(NAME, None)]
    assert cached_models()[0].size == hub.size(NAME)
    remove([NAME])
    assert cached_models() == []
    assert cached_folder(NAME) is None
    with pytest.raises(ModelNotFoundError, match="cannot be deleted"):
        remove([NAME])


def test_a_cache_that_is_not_there_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    assert cached_models() == []
