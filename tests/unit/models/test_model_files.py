"""From a name to a folder whose weights are complete, and what is said where there is none."""

from __future__ import annotations

import errno
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import hf_raise_for_status

from macspec.errors import BadOptionError, MacspecError, ModelBrokenError, ModelNotFoundError
from macspec.models import files
from macspec.models.files import check_weights, locate, read_header

# httpx in the hub's first versions, httpx2 in later ones.
http: Any = import_module(errors.HTTPError.__module__.partition(".")[0])
URL = "https://huggingface.co/api/models/owner/name/revision/main"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def answering(monkeypatch):
    """Makes the hub fail with an error once the cache was found empty."""

    def install(error: BaseException) -> None:
        def snapshot_download(*_: object, local_files_only: bool = False, **__: object) -> str:
            if local_files_only:
                raise errors.LocalEntryNotFoundError("not cached")
            raise error

        monkeypatch.setattr(files, "snapshot_download", snapshot_download)

    return install


def response_error(status: int, **headers: str) -> Exception:
    """What the hub's library raises for a response."""
    response = http.Response(
        status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        request=http.Request("GET", URL),
    )
    with pytest.raises(errors.HfHubHTTPError) as caught:
        hf_raise_for_status(response)
    return caught.value


def unreachable(cause: Exception) -> Exception:
    """What the hub's library makes of a failed connection."""
    error = errors.LocalEntryNotFoundError(
        "An error happened while trying to locate the files on the Hub"
    )
    error.__cause__ = cause
    return error


def line(name: str = "owner/name@v1") -> str:
    with pytest.raises(MacspecError) as caught:
        locate(name)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "a@b").mkdir()
    assert locate(str(tmp_path)) == tmp_path
    assert locate(str(tmp_path / "a@b")) == tmp_path / "a@b"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~") == tmp_path


@pytest.mark.parametrize("name", ["/no/such/folder", "./folder", "a/b/c", "../x", "~/nothing", "é"])
def test_a_missing_path_is_no_id_and_asks_no_network(name):
    with pytest.raises(ModelNotFoundError, match="no such folder: check the path"):
        locate(name)


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name(name):
    with pytest.raises(BadOptionError, match="empty"):
        locate(name)


def test_a_name_that_no_system_takes():
    assert "no such folder" in line("x\0y")
    assert "no such folder" in line("x" * 5000)


def test_a_file_instead_of_a_folder(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelNotFoundError, match="is a file: give the folder"):
        locate(str(file))


def test_gguf_is_named_before_anything_is_fetched():
    with pytest.raises(ModelBrokenError, match="GGUF"):
        locate("models/llama-Q4_K_M.GGUF")


def test_a_folder_has_no_revision(tmp_path):
    with pytest.raises(BadOptionError, match="has no revisions: leave out @main"):
        locate(f"{tmp_path}@main")


def test_gated(answering):
    answering(response_error(403, X_Error_Code="GatedRepo"))
    assert "gated: accept its licence at https://hf.co/owner/name" in (text := line())
    assert "hf auth login" in text


def test_not_found(answering):
    answering(response_error(404, X_Error_Code="RepoNotFound"))
    assert line().startswith("owner/name: no such folder here, and no such model on the Hugging")


def test_revision_not_found(answering):
    answering(response_error(404, X_Error_Code="RevisionNotFound"))
    assert line() == "owner/name has no revision v1: check the branch, tag or commit after @"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "rejects the login"),
        (403, "may not read"),
        (429, "limits requests"),
        (502, "502"),
    ],
)
def test_other_answers(answering, status, says):
    message = "Invalid credentials in Authorization header"
    error = response_error(status, X_Error_Message=message)
    assert type(error) is errors.HfHubHTTPError
    answering(error)
    assert says in line()
    assert str(status) in line()


def test_server_down_and_nothing_cached(answering):
    answering(unreachable(response_error(503)))
    assert "the hub returned 503 for owner/name: try again later" in line()


def test_no_network(answering):
    answering(unreachable(http.ConnectError("[Errno -2] Name or service not known")))
    assert "the Hugging Face hub cannot be reached: connect to the network" in line()


def test_tls(answering):
    failure = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
    answering(unreachable(http.ConnectError(failure)))
    assert "TLS certificate is not trusted here" in line()
    assert "SSL_CERT_FILE" in line()


def test_proxy(answering, monkeypatch):
    answering(http.ProxyError("407 Proxy Authentication Required"))
    assert "through the proxy (407 Proxy Authentication Required): check HTTPS_PROXY" in line()
    answering(unreachable(http.ConnectError("Connection refused")))
    assert "proxy" not in line()
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert "through the proxy (Connection refused)" in line()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Data processing error: IO Error: No space left on device (os error 28)"),
    ],
)
def test_disk_full(answering, error):
    answering(error)
    assert "the disk is full" in line()
    assert "HF_HOME" in line()


def test_cache_not_writable(answering):
    answering(PermissionError(errno.EACCES, "Permission denied", "/cache/hub"))
    assert "cannot be stored in" in line()
    assert "HF_HOME" in line()


def test_a_firewall_is_not_taken_for_a_folder(answering):
    denied = PermissionError(errno.EPERM, "Operation not permitted")
    answering(unreachable(denied))
    assert "cannot be reached" in line()


def test_only_a_part_is_cached(answering):
    answering(errors.IncompleteSnapshotError("2 file(s) are missing", "/cache"))
    assert "only partly downloaded" in line()


def test_anything_else_is_still_one_line(answering):
    answering(RuntimeError("first line\nsecond line \x1b[31m" + "x" * 1000))
    assert line().startswith("owner/name cannot be downloaded (first line second line")
    assert len(line()) < 400
    assert "\x1b" not in line()


def test_an_interrupt_is_no_error(answering):
    answering(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        locate("owner/name")


def test_offline_is_respected_by_the_hub_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    text = line("owner/name@v1")
    assert str(tmp_path) in text
    assert "HF_HUB_OFFLINE is set: unset it, or run 'hf download owner/name --revision v1'" in text


def cached(cache: Path, source: Path) -> Path:
    """Put a model into a hub cache, as a download leaves it."""
    home = cache / "models--owner--name"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    (home / "snapshots").mkdir()
    return source.rename(home / "snapshots" / ("0" * 40))


@pytest.mark.parametrize("offline", [True, False])
def test_a_cached_model_needs_no_network(copy, tmp_path, monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    # Nothing listens there: a request would fail.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    folder = cached(tmp_path, copy())
    assert locate("owner/name") == folder
    assert locate("owner/name@main") == folder
    assert locate(f"owner/name@{'0' * 40}") == folder


def test_what_an_interrupted_download_left_is_completed(copy, monkeypatch):
    whole, part = copy("draft", "whole"), copy("draft", "part")
    (part / "model.safetensors").unlink()
    asked = []

    def snapshot_download(*_: object, local_files_only: bool = False, **__: object) -> str:
        asked.append(local_files_only)
        return str(part if local_files_only else whole)

    monkeypatch.setattr(files, "snapshot_download", snapshot_download)
    assert locate("owner/name") == whole
    assert asked == [True, False]


def test_code_is_fetched_only_on_demand(copy, monkeypatch):
    folder, asked = copy(), []

    def snapshot_download(repository: str, **settings: Any) -> str:
        asked.append((repository, settings["revision"], "*.py" in settings["allow_patterns"]))
        return str(folder)

    monkeypatch.setattr(files, "snapshot_download", snapshot_download)
    locate("owner/name")
    locate("owner/name@v1", trust_remote_code=True)
    assert asked == [("owner/name", None, False), ("owner/name", "v1", True)]
    assert not any(pattern in ("*", "*.bin") for pattern in files.PATTERNS)


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        (["config.json", "pytorch_model.bin"], "has only PyTorch weights"),
        (["README.md", "model-Q8_0.gguf"], "is a GGUF model"),
        (None, "has no weights"),
    ],
)
def test_a_repository_without_safetensors(tmp_path, monkeypatch, listing, says):
    def list_repo_files(*_: object, **__: object) -> list[str]:
        if listing is None:
            raise errors.OfflineModeIsEnabled("offline")
        return listing

    monkeypatch.setattr(files, "snapshot_download", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr(files, "list_repo_files", list_repo_files)
    with pytest.raises(ModelBrokenError, match=f"owner/name {says}"):
        locate("owner/name")


TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(file: Path, header: Any, payload: bytes = bytes(24)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    return file


def test_what_ships_is_whole(copy):
    for role in ("target", "draft"):
        check_weights(role, copy(role, role))


def test_header_is_read_without_its_metadata(tmp_path):
    file = write(tmp_path / "model.safetensors", {"__metadata__": {"format": "mlx"}, "a": TENSOR})
    assert read_header(file) == {"a": TENSOR}


@pytest.mark.parametrize("kept", [0, 5, 8, 20, 3000, -1])
def test_a_cut_off_file_says_so(copy, kept):
    folder = copy()
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelBrokenError, match=r"my-model: model\.\w+ is truncated.* bytes"):
        check_weights("my-model", folder)


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        ({"a": TENSOR}, bytes(25), "damaged: .* bytes, but its header accounts for"),
        ({"a": {**TENSOR, "shape": [2, 4]}}, bytes(24), "size of a does not match"),
        ({"a": {**TENSOR, "data_offsets": [24, 0]}}, bytes(24), "size of a does not match"),
        ({"a": {**TENSOR, "data_offsets": [0]}}, bytes(24), "damaged header"),
        ({"a": {"dtype": "F32"}}, bytes(24), "damaged header"),
        ({"a": 3}, bytes(24), "damaged header"),
        ([1, 2], bytes(24), "damaged header"),
        (b"not json", bytes(24), "damaged header"),
        (b"\xff\xfe{}", bytes(24), "damaged header"),
        (b"[" * 100_000, bytes(24), "damaged header"),
    ],
)
def test_a_header_that_lies_says_so(tmp_path, header, payload, reason):
    write(tmp_path / "model.safetensors", header, payload)
    with pytest.raises(ModelBrokenError, match=reason):
        check_weights("my-model", tmp_path)


def test_a_header_length_beyond_the_file_is_not_believed(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelBrokenError, match="truncated"):
        check_weights("my-model", tmp_path)


def test_a_git_lfs_pointer_is_named(tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelBrokenError, match=r"Git LFS pointer.*git lfs pull"):
        check_weights("my-model", tmp_path)


def test_a_type_of_the_future_is_not_judged(tmp_path):
    write(tmp_path / "model.safetensors", {"a": {**TENSOR, "dtype": "F6_E2M3"}})
    check_weights("my-model", tmp_path)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("pytorch_model.bin", "only PyTorch weights"),
        ("model-Q4_K_M.gguf", "GGUF"),
        ("consolidated.safetensors", r"no file is named model\*\.safetensors"),
        ("README.md", r"no weights \(model\*\.safetensors\)"),
    ],
)
def test_a_folder_without_usable_weights_says_what_it_has(tmp_path, file, reason):
    (tmp_path / file).touch()
    with pytest.raises(ModelBrokenError, match=f"my-model.*{reason}.*mlx-community"):
        check_weights("my-model", tmp_path)


def index(folder: Path, shards: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def test_a_shard_that_the_index_names_and_is_gone_is_named(tmp_path):
    write(tmp_path / "model-00001-of-00002.safetensors", {"a": TENSOR})
    index(
        tmp_path,
        {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    )
    with pytest.raises(ModelBrokenError, match=r"model-00002-of-00002\.safetensors of .*missing"):
        check_weights("my-model", tmp_path)
    write(tmp_path / "model-00002-of-00002.safetensors", {"b": TENSOR})
    check_weights("my-model", tmp_path)


def test_an_old_index_beside_merged_weights_does_no_harm(tmp_path):
    write(tmp_path / "model.safetensors", {"a": TENSOR})
    index(tmp_path, {"a": "model-00001-of-00002.safetensors"})
    check_weights("my-model", tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_named(tmp_path, content):
    write(tmp_path / "model.safetensors", {"a": TENSOR})
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelBrokenError, match=r"index\.json cannot be read"):
        check_weights("my-model", tmp_path)


def test_a_folder_that_mlx_lm_cannot_search_is_named(copy):
    with pytest.raises(ModelBrokenError, match=r"rename it"):
        check_weights("my-model", copy("draft", "models [mlx]"))
