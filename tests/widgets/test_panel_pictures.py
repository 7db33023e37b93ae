"""How the panel looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from panelhost import PanelHost
from panelstates import EMPTY, NO_POWER, PARKED, STREAMING

from macspec.app.panel.panelstate import PanelState

WIDE, LOW = (36, 35), (29, 22)

STRIP: dict[str, Any] = {"narrow": True}


@pytest.mark.parametrize(
    ("state", "options", "size", "press"),
    [
        pytest.param(EMPTY, {}, WIDE, [], id="empty"),
        pytest.param(STREAMING, {}, WIDE, [], id="streaming"),
        pytest.param(PARKED, {}, WIDE, ["tab", "right", "right"], id="parked"),
        pytest.param(NO_POWER, {}, (36, 48), [], id="no-power"),
        pytest.param(STREAMING, {"theme": "macspec-light"}, WIDE, [], id="light"),
        pytest.param(STREAMING, {}, LOW, [], id="low"),
        pytest.param(STREAMING, STRIP, (80, 24), ["tab"], id="strip"),
        pytest.param(STREAMING, STRIP, (40, 12), ["tab"], id="narrow"),
    ],
)
def test_panel(
    snap_compare: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    state: PanelState,
    options: dict[str, Any],
    size: tuple[int, int],
    press: list[str],
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = PanelHost(state, **options)
    assert snap_compare(app, terminal_size=size, press=press)
