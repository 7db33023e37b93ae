"""Which room may know of which."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import macspec

ROOT = Path(__file__).parents[2]

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


def module_name(file: Path) -> str:
    """The dotted name under which a source file of the repository is imported."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "macspec" else ("macspec", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file: Path, modules: Collection[str]) -> set[str]:
    """The project's modules that a file imports outside of functions, for types included."""
    name, found = module_name(file), set()
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    pending: list[ast.AST] = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - max(node.level - 1, 0)]
            base = ".".join([*(up if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return {each for each in found if each in modules and each != name}


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {
        module_name(file): file
        for folder in ("macspec", "app", "metal")
        for file in (ROOT / folder).rglob("*.py")
    }
    graph = {name: imported(file, files) for name, file in files.items()}
    assert len(graph) > 100
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
