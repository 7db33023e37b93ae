"""Commands and signs of life between two ends of a connection."""

from __future__ import annotations

import socket
from queue import Empty, SimpleQueue

import pytest

from macspec.hosts import link
from macspec.hosts.link import Link
from macspec.hosts.lost import ENDED, SILENT


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def test_messages_and_an_end() -> None:
    lost: SimpleQueue[str] = SimpleQueue()
    ours, theirs = pair()
    one, other = Link(ours, lost.put), Link(theirs, lambda how: None)
    one.send("logits", None, 5, [1, 2])
    one.send("rollback", None, 3)
    assert [other.receive(), other.receive()] == [
        ["logits", None, 5, [1, 2]],
        ["rollback", None, 3],
    ]
    assert one.sent == 2
    other.close()
    assert lost.get() == ENDED
    one.close()


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that is alive says so; one that hangs does not."""
    monkeypatch.setattr(link, "BEAT", 0.01)
    lost: SimpleQueue[str] = SimpleQueue()
    ours, _theirs = pair()
    one = Link(ours, lost.put)
    assert lost.get() == SILENT
    one.close()


def test_silence_means_nothing_while_ranks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "BEAT", 0.05)
    lost: SimpleQueue[str] = SimpleQueue()
    ours, _theirs = pair()
    one = Link(ours, lost.put)
    one.joining = True
    with pytest.raises(Empty):
        lost.get(timeout=2 * 0.05 * link.MISSED)
    one.joining = False
    assert lost.get() == SILENT
    one.close()
