"""Pictures: each from the numbers of a report, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reports import report

from macspec.models import Pair

plots = pytest.importorskip("macspec.bench.plots", reason="needs matplotlib")

POINT = {
    "series": "draft",
    "temperature": 0.0,
    "low": 1.0,
    "high": 1.4,
    "tokens_per_pass": 2.0,
    "acceptance": 0.5,
}


def full(pocket: Pair) -> dict[str, Any]:
    """A report that has something for every picture."""
    found = report(pocket, {"plain": 50.0, "auto": 80.0, "$_draft": 60.0})
    for cell in found["cells"]:
        cell["drafted_by_position"], cell["acceptance_by_position"] = [40, 20, 3], [0.8, 0.5, 1.0]
    found["sweep"] = {
        "over": "depth",
        "measure": "times plain",
        "points": [{**POINT, "x": depth, "value": 1.0 + depth / 10} for depth in (1, 2, 4)],
        "chosen": {"0": {"x": 2.5, "value": 1.3, "shares": [[2, 0.5], [3, 0.5]]}},
    }
    return found


def test_every_picture_is_drawn(pocket: Pair, tmp_path: Path) -> None:
    written = {path.name for path in plots.draw(full(pocket), tmp_path)}
    names = ("speedup", "acceptance", "cost-curve", "sweep")
    assert written == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    for path in tmp_path.iterdir():
        start = b"\x89PNG" if path.suffix == ".png" else b"<?xml"
        assert path.read_bytes().startswith(start)
        assert path.stat().st_size > 2000


def test_the_same_report_gives_the_same_drawing(
    pocket: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "PICTURES", {"speedup": plots.speedups})
    found = full(pocket)
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        list(plots.draw(found, tmp_path / name))
        texts.append((tmp_path / name / "speedup.svg").read_text())
    assert texts[0] == texts[1]


def test_what_has_no_numbers_is_not_drawn(pocket: Pair, tmp_path: Path) -> None:
    found = report(pocket, {"plain": 50.0})
    found["costs"] = {"passes": [], "steps": {}, "reading": {}}
    assert not list(plots.draw(found, tmp_path))


def test_rates_of_few_tokens_are_not_drawn(pocket: Pair) -> None:
    (panel, *_) = plots.acceptance(full(pocket)).axes
    assert next(list(line.get_ydata()) for line in panel.get_lines()) == [0.8, 0.5]


def test_the_speed_ups_are_the_bars(pocket: Pair) -> None:
    found = report(pocket, {"plain": 50.0, "auto": 80.0})
    (panel, *_) = plots.speedups(found).axes
    cells = [it for it in found["cells"] if it["arm"] == "auto" and it["temperature"] == 0]
    heights = [bar.get_height() for bar in panel.patches]
    assert heights == pytest.approx([it["speedup"]["value"] for it in cells])


def test_settings_without_numbers_are_named(pocket: Pair, tmp_path: Path) -> None:
    found = full(pocket)
    rules = ("block", "keyed")
    found["sweep"].update(
        over="rules", chosen={}, points=[{**POINT, "x": rule, "value": 1.2} for rule in rules]
    )
    (panel, *_) = plots.sweep(found).axes
    assert [label.get_text() for label in panel.get_xticklabels()] == list(rules)


def test_a_folder_that_cannot_be_written_is_told(pocket: Pair, tmp_path: Path) -> None:
    from macspec.errors import BadOptionError

    with pytest.raises(BadOptionError, match="cannot write"):
        list(plots.draw(full(pocket), tmp_path / "nowhere"))
