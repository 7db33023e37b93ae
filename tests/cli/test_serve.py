"""``macspec serve`` as a user starts it: what is missing or impossible is one line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import OpenAI
from scripted_run import Outcome

from macspec.cli import serve as command

Macspec = Callable[..., Outcome]


def refused(outcome: Outcome) -> str:
    assert outcome.status == 2
    assert outcome.out == b""
    assert outcome.err.count("\n") == 1
    return outcome.err


def test_without_the_extra_it_says_what_to_install(
    macspec: Macspec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "pip install 'macspec[serve]'" in refused(macspec("serve"))


def test_other_machines_need_a_key(macspec: Macspec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACSPEC_API_KEY", raising=False)
    for host in ("0.0.0.0", "::", "my.mac"):
        assert "add --api-key" in refused(macspec("serve", "--host", host))


def test_a_port_that_is_taken(macspec: Macspec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in refused(macspec("serve", "--port", str(port)))


def test_the_panel_needs_a_terminal(macspec: Macspec) -> None:
    assert "--panel needs a terminal" in refused(macspec("serve", "--panel", "--port", "0"))


@pytest.mark.slow
def test_the_built_in_pair_is_served_until_ctrl_c(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "macspec", "serve", "--port", "0", "--no-learn"]
    environment = {**os.environ, "MACSPEC_HOME": str(tmp_path), "MACSPEC_API_KEY": "secret"}
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            address = next(
                found[0] for line in lines if (found := re.search(r"http://\S+/v1", line))
            )
            with OpenAI(base_url=address, api_key="secret", max_retries=0) as client:
                reply = client.chat.completions.create(
                    model="macspec", messages=[{"role": "user", "content": "Hello!"}], max_tokens=8
                )
            assert reply.choices[0].message.content
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
