"""What every test may use."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# Nothing that a test teaches macspec stays on the machine, and nothing on it changes a test.
HOME = tempfile.TemporaryDirectory(prefix="macspec-tests-")
os.environ["MACSPEC_HOME"] = HOME.name

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models, prompts and texts beside the repository, where there is one."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("needs ../shared")
    return folder
