"""A rank that does not come so far as to connect: one line, soon."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from macspec.errors import HostError
from macspec.hosts import lost
from macspec.hosts.file import read_hosts
from macspec.hosts.group import Group

GONE = "Timeout, server mac2.local not responding."

SSH = f"""case "$*" in
*ServerAliveInterval=1*ServerAliveCountMax=4*mac2.local*) echo "{GONE}" >&2 ;;
esac
exit 255"""
"""In place of ssh, when the machine is gone."""


@pytest.mark.parametrize(
    ("name", "program", "script", "said"),
    [
        ("127.0.0.1", "python", "kill -STOP $$", "rank 1 no longer answers"),
        ("127.0.0.1", "python", "exit 1", "rank 1 could not be started"),
        ("mac2.local", "ssh", SSH, f"mac2.local could not be started ({GONE})"),
    ],
)
def test_refusals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    program: str,
    script: str,
    said: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(lost, "PATIENCE", 0.2)
    path = tmp_path / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    hosts = [
        {"ssh": host, "ips": ["127.0.0.1"], "python": str(tmp_path / "python")}
        for host in ("127.0.0.1", name)
    ]
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    with pytest.raises(HostError) as refusal:
        Group(read_hosts(str(tmp_path / "hosts.json")))
    assert str(refusal.value) == said
