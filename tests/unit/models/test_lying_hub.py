"""A server that lies: refused in one line or survived, and nothing is written beside the cache."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakehub import COMMIT, Hub, serving
from hostile import harms
from huggingface_hub import close_session, constants

from macspec.errors import MacspecError
from macspec.models import download, hubclient
from macspec.models.download import pull
from macspec.models.hubcache import cached_folder

NAME = "owner/draft"

Lie = Callable[[BaseHTTPRequestHandler], None]


def answer(
    handler: BaseHTTPRequestHandler, body: bytes = b"", status: int = 200, **headers: str
) -> None:
    handler.send_response(status)
    headers = {"Content-Length": str(len(body)), **headers}
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def redirect(target: str) -> Lie:
    return lambda handler: answer(handler, status=302, Location=target)


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    until = time.monotonic() + 30
    while time.monotonic() < until and handler.command != "HEAD":
        handler.wfile.write(b"[" * 65536)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(50):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def silent(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.5)


def raw(data: bytes) -> Lie:
    return lambda handler: handler.wfile.write(data) and None


def bomb(handler: BaseHTTPRequestHandler) -> None:
    answer(handler, gzip.compress(bytes(2**27), 9), Content_Encoding="gzip")


LIES: dict[str, Lie] = {
    "nothing": answer,
    "no JSON": lambda handler: answer(handler, b"<html>\x1b[2J"),
    "a number": lambda handler: answer(handler, b"7"),
    "an empty object": lambda handler: answer(handler, b"{}"),
    "depth": lambda handler: answer(handler, b"[" * 200_000),
    "no end": endless,
    "drops": dripping,
    "silence": silent,
    "a bomb": bomb,
    "a short body": lambda handler: answer(handler, b"{", Content_Length="1000"),
    "a long body": lambda handler: answer(handler, b"{}" * 500, Content_Length="3"),
    "no status": raw(b"\x00\xff\x1b[2J\r\n\r\n"),
    "huge headers": raw(b"HTTP/1.1 200 OK\r\n" + b"a: " + b"b" * 10_000_000 + b"\r\n\r\n"),
    "a teapot": lambda handler: answer(handler, b"x" * 100_000, 418),
    "a failure": lambda handler: answer(handler, b"\x1b]0;title\x07" * 999, 500),
    "a file": redirect("file:///etc/passwd"),
    "data": redirect("data:text/plain,x"),
    "another scheme": redirect("gopher://127.0.0.1/x"),
    "a circle": lambda handler: answer(handler, status=302, Location=handler.path),
    "a port that is closed": redirect("http://127.0.0.1:9/x"),
}

HEADS = {
    "a tag out of the cache": {"ETag": '"../../../evil"'},
    "a linked tag out of the cache": {"X-Linked-ETag": '"../../evil"', "ETag": '"a"'},
    "a commit out of the cache": {"X-Repo-Commit": "../../../evil", "ETag": '"a"'},
    "a long tag": {"ETag": '"' + "a" * 5000 + '"'},
}

PATHS = (
    *("../../evil.safetensors", "/tmp/evil.safetensors", "model/../../../evil.safetensors"),
    *("model\x00.safetensors", "model\x1b[2J.safetensors", "model..\\..\\evil.safetensors"),
    *("model" + "a" * 300 + ".safetensors", "model//evil.safetensors", "./model.safetensors"),
)

FIELDS: dict[str, list[Any]] = {
    "path": [*PATHS, None, 7, [], ""],
    "size": [-1, 2**70, "many", None, 1.5, 10, 10**9],
    "oid": ["", "../../evil", None, 7],
    "lfs": [
        {"oid": "../../../evil", "size": 4, "pointerSize": 1},
        {"oid": "0" * 64, "size": 4, "pointerSize": 1},
        {"oid": None, "size": None, "pointerSize": None},
        "x",
    ],
    "type": ["directory", "link", None],
}

COMMITS = ("../../../evil", "", "main", None, 7, COMMIT + "/../evil", "g" * 40)


def only(kind: str, lie: Lie) -> Callable[[BaseHTTPRequestHandler, str], bool]:
    def answer_with(handler: BaseHTTPRequestHandler, asked: str) -> bool:
        if asked == kind:
            with suppress(OSError):
                lie(handler)
        return asked == kind

    return answer_with


def lies() -> Iterator[tuple[str, Callable[[Hub], None]]]:
    """All lies, by what the server says."""
    for kind in ("info", "tree", "head", "file"):
        for name, lie in LIES.items():
            yield f"{name} for {kind}", lambda hub, k=kind, it=lie: setattr(hub, "lie", only(k, it))
    for name, headers in HEADS.items():
        lie = only("head", lambda handler, it=headers: answer(handler, b"x" * 9, 200, **it))
        yield name, lambda hub, it=lie: setattr(hub, "lie", it)
    for field, values in FIELDS.items():
        for value in values:
            yield (
                f"{field} {ascii(value)[:40]}",
                lambda hub, f=field, v=value: setattr(
                    hub, "entry", lambda entry: entry.update({f: v})
                ),
            )
    for commit in COMMITS:
        body = json.dumps({"id": NAME, "sha": commit, "siblings": [], "private": False}).encode()
        lie = only("info", lambda handler, it=body: answer(handler, it))
        yield f"commit {commit}", lambda hub, it=lie: setattr(hub, "lie", it)


CASES = list(lies())


def wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Sets for how long a server is waited for."""
    for module, name in (
        (download, "SILENCE"),
        (hubclient, "SILENCE"),
        (hubclient, "SECONDS"),
        (constants, "HF_HUB_DOWNLOAD_TIMEOUT"),
        (constants, "HF_HUB_ETAG_TIMEOUT"),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def hub(copy, tmp_path, monkeypatch) -> Iterator[Hub]:
    monkeypatch.setattr(download, "PAUSES", (0.0,))
    wait(monkeypatch, 0.2)
    # Its pauses between attempts.
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=float))
    served = Hub()
    served.add(NAME, copy("draft", "draft"))
    close_session()
    with serving(served, tmp_path / "cache", monkeypatch):
        yield served
    close_session()


def outside(folder: Path) -> list[Path]:
    """What was written beside the cache."""
    return [
        path
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in ("cache", "draft") and path.is_file()
    ]


@pytest.mark.parametrize("every", [47, pytest.param(2, marks=pytest.mark.slow)])
def test_a_lie_is_refused_or_survived(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    for says, tell in CASES[::every]:
        hub.lie, hub.entry = (lambda handler, kind: False), (lambda entry: None)
        tell(hub)
        try:
            list(pull([NAME]))
        except MacspecError as error:
            message = str(error)
            assert 10 < len(message) <= 1001, says
            assert harms(message) == [], says
        assert outside(tmp_path) == [], says
    hub.lie, hub.entry = (lambda handler, kind: False), (lambda entry: None)
    wait(monkeypatch, 60.0)
    close_session()  # the last lie may have broken a connection that is kept
    list(pull([NAME]))
    folder = cached_folder(NAME)
    assert folder is not None
    for name, data in hub.models[NAME].items():
        assert (folder / name).read_bytes() == data


def test_there_are_enough_lies() -> None:
    assert len(CASES[::2]) >= 60


@pytest.mark.parametrize(
    ("says", "refused"),
    [
        ("a file for info", "a redirect to file:///etc/passwd"),
        ("no end for tree", "it has no end"),
        ("a tag out of the cache", "the header etag"),
        ("path '../../evil.safetensors'", "a file named ../../evil.safetensors"),
        (f"lfs {ascii(FIELDS['lfs'][0])[:40]}", "the checksum ../../../evil"),
        ("commit ../../../evil", "the commit ../../../evil"),
        ("no end for file", "is longer than it said"),
    ],
)
def test_what_is_said_of_a_lie(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, says: str, refused: str
) -> None:
    wait(monkeypatch, 60.0)
    dict(CASES)[says](hub)
    with pytest.raises(MacspecError, match="the hub's answer cannot be right") as caught:
        list(pull([NAME]))
    assert refused in str(caught.value)
