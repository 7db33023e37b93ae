"""Which room may know of which."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import macspec

ENGINE = sorted(
    module.name
    for module in pkgutil.walk_packages(macspec.__path__, "macspec.")
    if not module.name.startswith(("macspec.app", "macspec.__main__"))
)

RULES = [
    (ENGINE, ["textual"]),
    (["macspec.app"], ["mlx", "mlx_lm", "macspec.session"]),
    (["macspec"], ["mlx", "textual", "transformers", "huggingface_hub"]),
    (["macspec.verification", "macspec.control"], ["mlx_lm", "macspec.models"]),
    (["macspec.choices", "macspec.io", "macspec.events", "macspec.stats"], ["mlx", "numpy"]),
    (["macspec.store"], ["mlx", "textual", "numpy", "macspec.models", "macspec.session"]),
    (["macspec.worker"], ["mlx", "mlx_lm", "numpy", "macspec.session"]),
    (["macspec.power", "macspec.cli.options"], ["mlx", "textual", "tomlkit", "macspec.session"]),
]


@pytest.mark.parametrize(("modules", "forbidden"), RULES, ids=lambda names: names[0])
def test_a_room_does_not_import_what_it_must_not_know(
    modules: list[str], forbidden: list[str]
) -> None:
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(*(name for name in {forbidden!r} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_engine_is_all_there() -> None:
    assert {"macspec.session", "macspec.decode", "macspec.models.pair"} <= set(ENGINE)
