"""A server that is started is there, is ended, and says why where it is not."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from loopback_server import serving

from macspec.bench.server import Address, Server
from macspec.bench.serverarm import started
from macspec.errors import ServerError

SERVER = """
import http.server, os, pathlib, sys
pathlib.Path(sys.argv[2]).write_text(str(os.getpid()))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def free() -> Address:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Address("127.0.0.1", listener.getsockname()[1], "/v1")


def test_a_server_runs_as_long_as_it_is_needed(free: Address, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = [sys.executable, "-c", SERVER, str(free.port), str(file)]
    with started(command, Server(free)):
        assert Server(free).ready()
        pid = int(file.read_text())
        os.kill(pid, 0)
    assert not Server(free).ready()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_ends_at_once(free: Address) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such\\x1b[2J model')"]
    with pytest.raises(ServerError, match=r"ended with status 1; it said last: no such.* model"):
        started(command, Server(free)).__enter__()


def test_it_never_answers(free: Address) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(ServerError, match=r"does not answer at .* after 0\.2 s"):
        started(command, Server(free), patience=0.2).__enter__()


def test_there_is_no_such_program(free: Address) -> None:
    with pytest.raises(ServerError, match=r"cannot start \./no-such-server"):
        started(["./no-such-server"], Server(free)).__enter__()


def test_another_one_is_there_already() -> None:
    with serving() as (_, address), pytest.raises(ServerError, match=r"something already answers"):
        started([sys.executable, "-c", ""], Server(address)).__enter__()
    with serving() as (script, address):
        script.health = 503
        assert not Server(address).ready()
