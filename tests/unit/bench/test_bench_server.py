"""Servers beside macspec: what they stream is read, timed and counted, or refused in one line."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import DONE, Script, end, event, said, serving, usage

from macspec.bench.questions import Question
from macspec.bench.server import Address, Server, Streamed
from macspec.bench.serverarm import ServerArm, shares
from macspec.bench.tasks import Task
from macspec.errors import BadOptionError, ServerError
from macspec.sampling import Sampling

ASKED = ({"role": "user", "content": "Hello"},)


@pytest.fixture
def served() -> Iterator[tuple[Script, Address]]:
    with serving() as it:
        yield it


def replied(address: Address, **settings: object) -> Streamed:
    return Server(address).reply(ASKED, max_tokens=9, settings=settings)


def text(it: Streamed) -> str:
    return "".join(piece for piece, _ in it.pieces)


def test_a_reply_is_streamed_with_its_counts(served: tuple[Script, Address]) -> None:
    script, address = served
    details = {"cached_tokens": 2}
    script.chunks = [
        event({"choices": [{"delta": {"role": "assistant", "content": None}}]}),
        b": a comment\n\n",
        said("Hel"),
        said("lo"),
        end("length"),
        usage(2, 11, prompt_tokens_details=details),
        DONE,
    ]
    found = replied(address, temperature=0.5, seed=3)
    assert (text(found), found.reason) == ("Hello", "length")
    assert (found.tokens, found.prompt_tokens, found.cached_tokens) == (2, 11, 2)
    assert (found.drafted, found.accepted) == (None, None)
    (_, body) = script.asked[-1]
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == (
        "m-1",
        9,
        0.5,
        3,
    )
    assert body["stream"]
    assert body["stream_options"] == {"include_usage": True}


def test_each_piece_is_timed_when_it_comes(served: tuple[Script, Address]) -> None:
    script, address = served
    ticks = itertools.count(10.0, 0.5)
    script.chunks = [said("a"), said("b"), end(), DONE]
    found = Server(address, "m", clock=lambda: next(ticks)).reply(ASKED, max_tokens=2)
    assert found.pieces == [("a", 10.0), ("b", 10.5)]


def test_a_piece_is_timed_before_the_reply_is_over(served: tuple[Script, Address]) -> None:
    script, address = served
    go_on = threading.Event()
    script.chunks = [said("a"), lambda: go_on.wait(60) and None, said("b"), end(), DONE]

    def clock() -> float:
        waited = not go_on.is_set()
        go_on.set()
        return float(waited)

    found = Server(address, clock=clock).reply(ASKED, max_tokens=2)
    assert found.pieces == [("a", 1.0), ("b", 0.0)]


def test_an_interrupt_hangs_up(served: tuple[Script, Address]) -> None:
    script, address = served
    script.chunks = [said("a"), *[said("b" * 10_000)] * 5_000]

    def clock() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Server(address, clock=clock).reply(ASKED, max_tokens=2)
    assert script.hung_up.wait(60)


def test_reasoning_is_text_too_and_raw_text_has_its_own_path(
    served: tuple[Script, Address],
) -> None:
    script, address = served
    script.chunks = [
        said("hm", "reasoning_content"),
        said("so", "reasoning"),
        said("."),
        end(),
        DONE,
    ]
    assert text(replied(address)) == "hmso."
    script.chunks = [event({"choices": [{"text": "x", "finish_reason": "stop"}]})]
    assert text(Server(address).reply(ASKED, max_tokens=2, raw=True)) == "x"
    path, body = script.asked[-1]
    assert path == "/v1/completions"
    assert body["prompt"] == "Hello"


def test_an_event_may_come_in_pieces_and_lines(served: tuple[Script, Address]) -> None:
    script, address = served
    whole = said("ä€𝄞").replace(b"\n", b"\r\n")
    script.chunks = [bytes([byte]) for byte in whole] + [
        b'data: {"choices": [{"delta": {"content": "!"},\ndata:  "finish_reason": "stop"}]}\n\n'
    ]
    assert text(replied(address)) == "ä€𝄞!"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([said("a")], "broke off in the middle"),
        ([b"data: nonsense\n\n"], "invalid JSON"),
        ([b"data: [1]\n\n"], "non-object"),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], "invalid JSON"),
        ([event({"error": {"message": "out of\nmemory\x1b[2J"}})], "reports: out of memory"),
        ([b'error: {"message": "slot is gone"}\n\n'], "reports: slot is gone"),
        ([b"data: " + b"x" * 2**21], "without an end"),
        ([b"data: x\n" * 2**14] * 20, "without an end"),
        ([b"\n"], "broke off"),
    ],
)
def test_a_broken_stream_is_one_clear_line(
    served: tuple[Script, Address], chunks: list[bytes], words: str
) -> None:
    script, address = served
    script.chunks = chunks
    with pytest.raises(ServerError, match=words) as caught:
        replied(address)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b'{"error": {"message": "no such model"}}', "404: no such model"),
        (400, b'{"error": "bad"}', "400: bad"),
        (503, b"", "503: Service Unavailable"),
        (500, b"<html>\xff oops" + b"x" * 10_000, "500: <html>"),
        (302, b"", "302: Found"),
        (200, b'{"choices": [{"message": {"content": "whole"}}]}', "broke off"),
    ],
)
def test_a_refusal_is_one_clear_line(
    served: tuple[Script, Address], status: int, body: bytes, words: str
) -> None:
    script, address = served
    script.status, script.body = status, body
    with pytest.raises(ServerError, match=words) as caught:
        Server(address, "m").reply(ASKED, max_tokens=1)
    assert len(str(caught.value)) < 400


def test_nobody_there() -> None:
    with serving() as (_, address):
        pass
    with pytest.raises(ServerError, match="start it, or give another address"):
        Server(address).models()


def test_something_else_answers() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(ServerError, match="not a web server"):
            Server(Address("127.0.0.1", listener.getsockname()[1], "/v1")).models()
        thread.join()


def test_silence_has_an_end(served: tuple[Script, Address]) -> None:
    script, address = served
    over = threading.Event()
    script.chunks = [said("a"), lambda: over.wait(60) and None]
    with pytest.raises(ServerError, match=r"sent nothing for 2 s"):
        Server(address, "m", patience=2).reply(ASKED, max_tokens=1)
    over.set()


@pytest.mark.parametrize("models", [b"nonsense", [], {}, {"data": 3}, b"[" * 10_000])
def test_without_a_list_of_models_one_must_be_named(
    served: tuple[Script, Address], models: object
) -> None:
    script, address = served
    script.models = models
    with pytest.raises(ServerError, match="name the one to measure"):
        replied(address)


def test_no_model_is_loaded(served: tuple[Script, Address]) -> None:
    script, address = served
    script.models = {"data": [{"no": 1}, 2]}
    with pytest.raises(ServerError, match="lists no model"):
        replied(address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("127.9.9.9:1/", "http://127.9.9.9:1/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
        ("http://localhost:1234/api/v1/", "http://127.0.0.1:1234/api/v1"),
    ],
)
def test_addresses_of_this_machine(text: str, address: str) -> None:
    assert str(Address.parse(text)) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://192.168.1.2:80/v1", "not an address of this machine"),
        ("0.0.0.0:80", "not an address of this machine"),
        ("http://example.org:80", "not an address of this machine"),
        ("http://127.0.0.1.example.org:80", "not an address of this machine"),
        ("http://localhost@example.org:80", "is not an address like"),
        ("https://127.0.0.1:80", "is not an address like"),
        ("file:///etc/passwd", "is not an address like"),
        ("127.0.0.1", "has no port"),
        ("127.0.0.1:x", "is not an address"),
        ("http://[::1:80", "is not an address"),
        ("", "is not an address like"),
    ],
)
def test_other_addresses_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadOptionError, match=words):
        Address.parse(text)


def question(**fields: object) -> Question:
    return Question("q", Task("q", "chat", ASKED, 9), (1, 2, 3), 9, **fields)  # type: ignore[arg-type]


def test_an_arm_counts_tokens_and_times_them(served: tuple[Script, Address]) -> None:
    script, address = served
    ticks = itertools.count(0.0)
    script.chunks = [said("a"), said("b"), said("c"), end(), usage(4, 5), DONE]
    clock = lambda: next(ticks)  # noqa: E731
    arm = ServerArm("other", Server(address, clock=clock))
    written = arm.write(question(), Sampling(temperature=0, seed=2**40 + 1), False)
    stats = written.stats
    assert (written.text, written.reason, written.counts_passes) == ("abc", "end", False)
    assert (stats.tokens, stats.prompt_tokens, stats.ttft_s) == (4, 5, 1.0)
    # Three tokens in the two seconds after the first.
    assert stats.decode_tokens_per_s == 1.5
    body = script.asked[-1][1]
    assert (body["seed"], body["ignore_eos"], body["cache_prompt"]) == (1, True, False)
    assert arm.describe()["prompt_tokens_here_and_there"] == {"q": (3, 5)}
    assert arm.describe()["model"] == "m-1"


def test_an_arm_reports_what_a_server_drafted(served: tuple[Script, Address]) -> None:
    script, address = served
    timings = {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 6}
    script.chunks = [said("abc"), end(timings=timings), DONE]
    arm = ServerArm("other", Server(address))
    written = arm.write(question(), Sampling(), True)
    assert written.counts_passes
    assert (written.stats.passes, written.stats.tokens_per_pass) == (3, 3.0)
    assert written.stats.acceptance == 0.75
    assert "ignore_eos" not in script.asked[-1][1]


def test_what_an_arm_cannot_do() -> None:
    arm = ServerArm("other", Server(Address("127.0.0.1", 1, "/v1")))
    assert arm.why_not(question()) is None
    assert "recorded" in str(arm.why_not(question(forced=(1,))))


@given(st.lists(st.text(min_size=1, max_size=9), max_size=20), st.none() | st.integers(0, 200))
def test_tokens_are_shared_out_in_full(texts: list[str], tokens: int | None) -> None:
    found = shares(texts, tokens)
    assert len(found) == len(texts)
    assert all(share >= 0 for share in found)
    if texts:
        assert sum(found) == (len(texts) if tokens is None else tokens)
