"""What a hosts file says, and one line for each thing that is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from macspec.errors import BadOptionError
from macspec.hosts.file import read_hosts

ONE = {"ssh": "mac1", "ips": ["10.0.0.1"], "rdma": [None, "rdma_en2"]}
OTHER = {"ssh": "mac2", "ips": ["10.0.0.2", "10.0.1.2"], "rdma": ["rdma_en2", None]}


def written(folder: Path, document: Any) -> str:
    path = folder / "hosts.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_ring(tmp_path: Path) -> None:
    """A port for each address, as ``mlx.launch`` numbers them."""
    hosts = read_hosts(written(tmp_path, [ONE, {**OTHER, "python": "/opt/python"}]))
    variables, files = hosts.environment()
    (first,), (second, third) = json.loads(files["MLX_HOSTFILE"])
    port = int(first.removeprefix("10.0.0.1:"))
    assert (second, third) == (f"10.0.0.2:{port + 1}", f"10.0.1.2:{port + 2}")
    assert variables == {}
    assert hosts.hosts[1].python == "/opt/python"


def test_jaccl(tmp_path: Path) -> None:
    document = {"backend": "jaccl-ring", "envs": ["A=b=c"], "hosts": [ONE, OTHER]}
    variables, files = read_hosts(written(tmp_path, document)).environment()
    assert variables.pop("MLX_JACCL_COORDINATOR").startswith("10.0.0.1:")
    assert variables == {"A": "b=c", "MLX_JACCL_RING": "1"}
    assert json.loads(files["MLX_IBV_DEVICES"]) == [[None, "rdma_en2"], ["rdma_en2", None]]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "Failed to parse"),
        ("3", "object is not"),
        ([{"ips": []}, ONE], "'ssh'"),
        ([ONE], "fewer than two machines"),
        ([ONE, {"ssh": "mac2"}], "mac2 has no ips"),
        ({"backend": "mpi", "hosts": [ONE, OTHER]}, "its backend is 'mpi'"),
        ({"backend": "jaccl", "hosts": [ONE, {**OTHER, "rdma": []}]}, "rdma needs an entry"),
    ],
)
def test_what_is_wrong(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(BadOptionError, match=said):
        read_hosts(written(tmp_path, document))


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadOptionError, match="doesn't exist"):
        read_hosts(str(tmp_path / "none.json"))
