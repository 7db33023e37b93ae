"""States of the panel, as a session meets them."""

from __future__ import annotations

import math
from dataclasses import replace

from macspec.app.panel.panelstate import Mark, PanelState

EMPTY = PanelState()

READY = PanelState(
    activity="ready",
    target="mlx-community/Qwen3-8B-4bit",
    draft="mlx-community/Qwen3-0.6B-4bit",
    plain_tokens_per_s=22.7,
    context_used=0,
    context_limit=32768,
    memory_used=int(5.1 * 2**30),
    memory_limit=16 * 2**30,
    memory_plan=int(10.2 * 2**30),
    watts={"gpu": 0.4, "cpu": 1.2, "dram": 0.3},
    energy_source="Apple's energy counters",
    kernels="macspec's own for 4-bit products, MLX's attention",
    self_check="passed on 2026-10-12 09:41",
)

STREAMING = replace(
    READY,
    activity="writing",
    acceptance_now=0.82,
    acceptance=0.74,
    acceptance_by_position=(0.91, 0.83, 0.74, 0.66, 0.52, 0.41, 0.33),
    tokens_per_pass=3.12,
    tokens=1204,
    passes=386,
    drafter="draft",
    round_depth=4,
    round_drafted=4,
    round_accepted=3,
    session_tokens=5208,
    session_tokens_per_s=38.2,
    session_speedup=1.68,
    why="draft at depth 4: 1.82× plain expected",
    tokens_per_s=41.3,
    tokens_per_s_reply=39.8,
    speeds=tuple(
        22 + 16 * min(step / 12, 1) + 5 * math.sin(step / 2.3) + 3 * math.sin(step * 1.7)
        for step in range(48)
    ),
    marks=(Mark(22, "depth 4"), Mark(38, "ngram")),
    ttft_s=0.214,
    itl_ms_median=24.1,
    itl_ms_p95=61.0,
    context_used=1391,
    memory_used=int(6.1 * 2**30),
    watts={"gpu": 11.2, "cpu": 3.1, "dram": 0.8, "ane": 0.0, "system": 24.4},
    joules_per_token=0.41,
    net_joules_per_token=0.32,
    plain_joules_per_token=0.66,
)

PARKED = replace(
    STREAMING,
    acceptance_now=0.14,
    acceptance=0.22,
    acceptance_by_position=(0.31, 0.12, 0.04, 0.02),
    tokens_per_pass=1.08,
    drafter=None,
    round_depth=0,
    round_drafted=0,
    round_accepted=0,
    why="not drafting: draft at depth 2 would run at 0.71× plain",
    tokens_per_s=22.6,
    tokens_per_s_reply=22.1,
    speeds=tuple(22.5 + math.sin(step) / 2 for step in range(48)),
    marks=(),
)

NO_POWER = replace(
    STREAMING,
    watts={},
    joules_per_token=None,
    net_joules_per_token=None,
    plain_joules_per_token=None,
    energy_reason="the energy counters of this Linux machine are for root only",
    energy_source="",
    draft=None,
    drafter="suffix",
    round_depth=16,
    round_drafted=16,
    round_accepted=13,
    acceptance_by_position=tuple(0.97**position for position in range(1, 17)),
    rule="keyed",
    self_check="",
    kernels="MLX (no Metal)",
)
