"""The recurrences of stateful layers that have a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import mlx.core as mx
from mlx_lm.models.gated_delta import gated_delta_update
from mlx_lm.models.ssm import ssm_update

from . import gated_delta, mamba2


@dataclass(frozen=True)
class Net:
    """A kind of stateful layer.

    Attributes:
        kernel: the name of its kernel.
        stock: mlx-lm's function that the kernel takes the place of.
        rows: from that function's arguments by name to the rows of a call.
        shape: from those to what kernels are chosen by; its ``unsupported`` is a reason or None.
        run: the kernel; see ``macspec.pending.Recurrence``.
    """

    kernel: str
    stock: Callable[..., Any]
    rows: Callable[[Mapping[str, Any]], Any]
    shape: Callable[[Any], Any]
    run: Callable[[mx.array | None, Any, int, Any], tuple[mx.array, mx.array]]


NETS = (
    Net(
        gated_delta.KERNEL.name,
        gated_delta_update,
        gated_delta.Rows.of,
        attrgetter("shape"),
        gated_delta.gated_delta,
    ),
    Net(
        mamba2.KERNEL.name,
        ssm_update,
        mamba2.Rows.of,
        attrgetter("shape"),
        mamba2.mamba2,
    ),
)
