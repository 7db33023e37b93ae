"""The hosts file, as ``mlx.launch`` takes it and ``mlx.distributed_config`` writes it."""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx._distributed_utils.common import Hostfile

from ..errors import BadOptionError, brief

BACKENDS = ("ring", "jaccl", "jaccl-ring")

PORTS = range(32768, 60000)
"""Where a group's ports begin, at random: those of one that ended may still be taken."""

LOCAL = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of a group."""

    name: str
    """By which ssh reaches it."""
    ips: tuple[str, ...]
    """Of the connections between the ranks."""
    rdma: tuple[Any, ...]
    """JACCL's devices, one for each host."""
    python: str
    """The interpreter that has macspec."""

    @property
    def local(self) -> bool:
        return self.name in LOCAL


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of a group; the first is this one."""

    path: Path
    hosts: tuple[Host, ...]
    backend: str
    variables: tuple[str, ...]
    """NAME=value, for the environment of every rank."""

    @property
    def first(self) -> str:
        """The address of this machine in the group."""
        return self.hosts[0].ips[0]

    def environment(self) -> tuple[dict[str, str], dict[str, str]]:
        """Variables of every rank but for its number, and those that are to name a file with this
        content."""
        variables = dict(it.partition("=")[::2] for it in self.variables)
        port = random.choice(PORTS)
        if self.backend == "ring":
            ports = iter(range(port, port + sum(len(it.ips) for it in self.hosts)))
            ring = [[f"{ip}:{next(ports)}" for ip in host.ips] for host in self.hosts]
            return variables, {"MLX_HOSTFILE": json.dumps(ring)}
        variables["MLX_JACCL_COORDINATOR"] = f"{self.first}:{port}"
        if self.backend == "jaccl-ring":
            variables["MLX_JACCL_RING"] = "1"
        return variables, {"MLX_IBV_DEVICES": json.dumps([it.rdma for it in self.hosts])}


def read_hosts(name: str) -> Hosts:
    """Read a hosts file.

    Raises:
        BadOptionError: it cannot be read, or does not describe a group.
    """
    path = Path(os.path.expanduser(name)).absolute()
    try:
        found = Hostfile.from_file(path)
        document = json.loads(path.read_text())
        entries = document["hosts"] if isinstance(document, dict) else document
        hosts = tuple(
            Host(
                str(host.ssh_hostname),
                tuple(map(str, host.ips)),
                tuple(host.rdma),
                str(entry.get("python") or sys.executable),
            )
            for host, entry in zip(found.hosts, entries, strict=True)
        )
        backend, variables = str(found.backend or "ring"), tuple(map(str, found.envs))
    except Exception as error:  # of MLX's parser, and whatever a wrong kind of value leads to
        raise BadOptionError(f"--hosts {name}: {brief(error)}") from error
    wrong = None
    if backend not in BACKENDS:
        wrong = f"its backend is {backend!r}; it must be one of {', '.join(BACKENDS)}"
    elif len(hosts) < 2:
        wrong = "it lists fewer than two machines; without --hosts the model runs on this one"
    elif unnamed := next((it for it in hosts if not it.ips), None):
        wrong = f"{unnamed.name} has no ips: mlx.distributed_config finds them"
    elif backend != "ring" and any(len(it.rdma) != len(hosts) for it in hosts):
        wrong = "rdma needs an entry for each host: mlx.distributed_config finds them"
    if wrong is not None:
        raise BadOptionError(f"--hosts {name}: {wrong}")
    return Hosts(path, hosts, backend, variables)
