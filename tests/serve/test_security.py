"""Attempts that must be refused or bounded, and after each the server still answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from serving import (
    MODEL,
    ScriptedClient,
    Settings,
    a_round,
    ask,
    chat,
    eventually,
    said,
    serving,
)

from macspec.serve import guard
from macspec.serve.guard import Access
from macspec.worker import Call, Queued
from macspec.worker.messages import Answer


@pytest.fixture(autouse=True)
def alive(server: Any) -> Iterator[None]:
    yield
    assert ask(server, chat())[0] == 200


FOREIGN = [
    "evil.example",
    "evil.example:8377",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "[::1].evil.example",
    "localhost@evil.example",
    "192.168.1.7",
    "[::ffff:192.168.1.7]:8377",
    "[fe80::1]",
    "127.0.0.1:8377:1",
    "127.0.0.1:999999",
    "0.0.0.0",
    "2130706433",
    "",
    "é",
]
OWN = ["localhost", "LOCALHOST:8377", "localhost.", "127.0.0.1", "127.1.2.3:1", "[::1]:8377"]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_name_that_is_not_this_machines_is_refused(server: Any, host: str) -> None:
    """DNS rebinding: the attacker's name resolves to this machine."""
    status, body = ask(server, chat(), host=host)
    assert status in (400, 403)
    assert status == 400 or body["error"]["code"] == "host_not_allowed"


def test_this_machines_names_are_accepted(server: Any) -> None:
    assert {ask(server, chat(), host=host)[0] for host in OWN} == {200}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8377"},
        {"sec_fetch_site": "cross-site"},
        {"origin": "https://evil.example", "content_type": "text/plain"},
    ],
    ids=str,
)
def test_a_web_page_may_not_ask(
    server: Any, engine: ScriptedClient, headers: dict[str, str]
) -> None:
    status, body = ask(server, chat(), **headers)
    assert (status, body["error"]["code"]) == (403, "origin_not_allowed")
    assert not engine.asked


def test_a_web_page_that_is_allowed_may_ask(engine: ScriptedClient) -> None:
    access = Access("secret", hosts=("my.mac",), origins=("https://good.example",), beyond=True)
    key = {"authorization": "Bearer secret"}
    with serving(engine, Settings(MODEL, access=access)) as server:
        origin = {"origin": "https://good.example"}
        assert ask(server, chat(), **origin, **key)[0] == 200
        assert ask(server, chat(), host="192.168.1.7", **key)[0] == 200
        assert ask(server, chat(), host="my.mac:8377", **key)[0] == 200
        assert ask(server, chat(), host="evil.example", **key)[0] == 403
        assert ask(server, chat(), origin="https://evil.example", **key)[0] == 403
        wrong = ["", "secret", "Bearer", "Bearer wrong", "Basic secret", "Bearer sécret"]
        for each in wrong:
            status, body = ask(server, chat(), authorization=each.encode().decode("latin-1"))
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")


NOT_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"messages": NaN}',
    b'{"a":' * 100_000,
    b"[" * 100_000,
    b'{"max_tokens": 1' + b"0" * 10_000 + b"}",
]


@pytest.mark.parametrize("raw", NOT_JSON, ids=lambda raw: repr(raw[:12]))
def test_what_is_no_json_object_is_refused(server: Any, raw: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        status, body = ask(server, raw, path)
        assert status == 400
        assert body["error"]["type"] == "invalid_request_error"


WRONG: list[dict[str, Any]] = [
    {"messages": "hello"},
    {"messages": [7]},
    {"messages": [{"role": "user", "content": 7}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    {"messages": [{"content": "no role"}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]},
    {"stream": "yes"},
    {"temperature": "hot"},
    {"temperature": True},
    {"max_tokens": 0},
    {"max_tokens": 1.5},
    {"stop": [""]},
    {"stop": ["x"] * 17},
    {"stop": 7},
    {"n": 2},
    {"modalities": ["audio"]},
    {"audio": True},
    {"max_completion_tokens": 0, "max_tokens": 4},
    {"logit_bias": {"a": 1}},
    {"logit_bias": {"1": 10**400}},
    {"top_logprobs": 3},
    {"logprobs": True, "top_logprobs": 21},
    {"prediction": "text"},
    {"prediction": {"type": "content", "content": [{"type": "file"}]}},
    {"tools": [{"type": "retrieval"}]},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "required"},
    {"response_format": {"type": "json_schema", "json_schema": {}}},
    {"response_format": {"type": "grammar"}},
    {
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "f"}}],
    },
    {"reasoning_effort": "endless"},
    {"stream_options": []},
    {"macspec": 7},
    {"model": ["macspec"]},
]

WRONG_TEXT = [{"prompt": ["a", "b"]}, {"prompt": [7]}, {"echo": True}, {"best_of": 2}, {}]


@pytest.mark.parametrize("fields", WRONG, ids=lambda it: json.dumps(it)[:40])
def test_a_wrong_field_is_named_and_nothing_is_asked_of_the_engine(
    server: Any, engine: ScriptedClient, fields: dict[str, Any]
) -> None:
    status, body = ask(server, chat(**fields))
    assert status == 400
    assert body["error"]["param"].split(".")[0].split("[")[0] in fields
    assert not engine.asked


@pytest.mark.parametrize("fields", WRONG_TEXT, ids=str)
def test_so_is_one_of_a_text_to_continue(
    server: Any, engine: ScriptedClient, fields: dict[str, Any]
) -> None:
    prompt = {"prompt": "Once"} if fields else {}
    status, body = ask(server, {**prompt, **fields}, "/v1/completions")
    assert (status, body["error"]["param"]) == (400, next(iter(fields), "prompt"))
    assert not engine.asked


@pytest.mark.parametrize("name", ["../../etc/passwd", "\x1b[2J\x07", "a" * 9999, "macspec/.."])
def test_a_models_name_is_only_compared(server: Any, engine: ScriptedClient, name: str) -> None:
    status, body = ask(server, chat(model=name))
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert body["error"]["message"].isprintable()
    assert len(body["error"]["message"]) < 400
    assert not engine.asked


def test_half_a_surrogate_pair_comes_back_as_it_was(server: Any) -> None:
    status, body = ask(server, {"model": "\ud800"})
    assert status == 404
    assert "\\ud800" in body["error"]["message"]


def connected(server: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def head(length: str, path: str = "/v1/chat/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()


def test_a_body_of_100_mb_is_refused_before_it_is_read(server: Any) -> None:
    with connected(server) as it:
        it.sendall(head(f"Content-Length: {100 * 2**20}"))
        assert it.recv(99).startswith(b"HTTP/1.1 413")


def test_a_body_of_unknown_size_is_read_no_further_than_the_limit(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LARGEST", 2**16)
    with connected(server) as it:
        it.sendall(head("Transfer-Encoding: chunked"))
        for _ in range(5):
            it.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
        assert it.recv(99).startswith(b"HTTP/1.1 413")


def test_a_client_that_sends_too_slowly_is_let_go(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY", 0.05)
    with connected(server) as it:
        it.sendall(head("Content-Length: 9") + b"{")
        assert it.recv(99).startswith(b"HTTP/1.1 408")
    monkeypatch.undo()


def test_a_connection_that_asks_nothing_is_closed(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "HEADERS", 0.05)
    for begun in (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc"):
        with connected(server) as it, suppress(ConnectionError):  # It may be closed before that.
            it.sendall(begun)
            assert it.recv(99) == b""


def test_slow_clients_on_many_connections_keep_nobody_out(
    engine: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "CONNECTIONS", 6)
    answers, engine.events = engine.events, (Queued(7),)
    raw = json.dumps(chat(stream=True)).encode()
    with serving(engine, Settings(MODEL)) as server, ExitStack() as opened:
        asking = opened.enter_context(connected(server))
        asking.sendall(head(f"Content-Length: {len(raw)}") + raw)
        assert eventually(lambda: len(engine.calls) == 1)
        engine.events = answers
        slow = []
        for _ in range(20):
            slow.append(opened.enter_context(connected(server)))
            slow[-1].sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
            assert ask(server, chat())[0] == 200
            assert len(server.server_state.connections) <= 6
        for it in slow[:12]:
            with suppress(ConnectionError):
                assert it.recv(99) == b""
        assert not any(call is engine.calls[0] for call in engine.stopped)


def test_control_characters_of_a_request_reach_no_log(
    engine: ScriptedClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even if they are in the message of an unexpected error."""
    evil = "\x1b[2J\x1b]0;owned\x07"

    def fail(call: Call) -> None:
        raise RuntimeError(evil)

    logged: list[str] = []

    def ended() -> bool:
        logged.extend(capfd.readouterr())
        return "RuntimeError" in "".join(logged)

    with serving(engine, Settings(MODEL)) as server:
        assert ask(server, chat(evil), user_agent=evil)[0] in (200, 400)
        assert ask(server, chat(evil, model=evil))[0] == 404
        assert ask(server, chat(), "/%1b%5b2J")[0] == 404
        engine.more = fail
        status, body = ask(server, chat(evil))
        assert status == 500
        assert body["error"]["message"].isprintable()
        assert eventually(ended)
        engine.more = lambda call: None
    logged.extend(capfd.readouterr())
    assert "in fail\n" in "".join(logged)
    assert "owned" not in "".join(logged)
    assert "\x1b" not in "".join(logged)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n",
        b"PUT / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_no_http_is_refused(server: Any, raw: bytes) -> None:
    with connected(server) as it:
        it.sendall(raw)
        assert it.recv(99).startswith(b"HTTP/1.1 4")


def endless(engine: ScriptedClient, text: str) -> None:
    """From now on replies have no end."""
    engine.events = (Queued(7), *(it for _ in range(400) for it in (said(text), a_round())))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_reply(
    server: Any, engine: ScriptedClient, stream: bool
) -> None:
    before: tuple[Answer, ...] = tuple(engine.events)
    endless(engine, "word ")
    raw = json.dumps(chat(stream=stream)).encode()
    with connected(server) as it:
        it.sendall(head(f"Content-Length: {len(raw)}") + raw)
        assert eventually(lambda: bool(engine.calls))
        if stream:
            assert it.recv(9) == b"HTTP/1.1 "
    assert eventually(lambda: engine.stopped == engine.calls)
    engine.events = before


def test_a_reader_that_takes_nothing_ends_its_reply(
    server: Any, engine: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: tuple[Answer, ...] = tuple(engine.events)
    monkeypatch.setattr(guard, "READER", 0.05)
    endless(engine, "x" * 50_000)
    raw = json.dumps(chat(stream=True)).encode()
    with connected(server) as it:
        it.sendall(head(f"Content-Length: {len(raw)}") + raw)
        assert eventually(lambda: bool(engine.stopped))
    assert engine.stopped == engine.calls
    engine.events = before


def test_no_more_requests_wait_than_the_queue_holds(engine: ScriptedClient) -> None:
    engine.events = (Queued(7),)
    with serving(engine, Settings(MODEL, queue=2)) as server:
        raw = json.dumps(chat(stream=True)).encode()
        waiting = [connected(server) for _ in range(2)]
        for it in waiting:
            it.sendall(head(f"Content-Length: {len(raw)}") + raw)
        assert eventually(lambda: len(engine.calls) == 2)
        status, body = ask(server, chat())
        assert (status, body["error"]["code"]) == (429, "queue_full")
        waiting.pop().close()
        assert eventually(lambda: bool(engine.stopped))
        engine.events = ScriptedClient().events
        assert eventually(lambda: ask(server, chat())[0] == 200)
        waiting.pop().close()
