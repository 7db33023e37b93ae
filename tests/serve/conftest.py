from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from serving import MODEL, ScriptedClient, Settings, openai_client, serving
from tinymodels import noisy_folder, saved

from macspec.worker import PairChoice, ProcessEngine


@pytest.fixture(scope="module")
def scripted_server() -> Iterator[tuple[ScriptedClient, Any]]:
    client = ScriptedClient()
    with serving(client) as it:
        yield client, it


@pytest.fixture
def engine(scripted_server: tuple[ScriptedClient, Any]) -> ScriptedClient:
    """Of the server, as new."""
    scripted_server[0].__init__()  # type: ignore[misc]
    return scripted_server[0]


@pytest.fixture
def server(engine: ScriptedClient, scripted_server: tuple[ScriptedClient, Any]) -> Any:
    return scripted_server[1]


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    """A child process with a tiny pair, in the precision in which equality is exact."""
    folder = tmp_path_factory.mktemp("pair")
    target = saved("llama", folder / "target")
    draft = noisy_folder(target, folder / "draft")
    client = ProcessEngine(log=folder / "engine.log")
    choice = PairChoice(str(target), str(draft), context=1024, learn=False)
    with pytest.MonkeyPatch.context() as patch:  # unknown to the plans of other tests
        patch.setenv("MACSPEC_HOME", str(folder))
        assert not hasattr(client.load(choice).result(120), "kind")
    yield client
    client.close()


@pytest.fixture(scope="session")
def real_server(real_engine: ProcessEngine) -> Iterator[Any]:
    with serving(real_engine, Settings(MODEL)) as it:
        yield it


@pytest.fixture(scope="session")
def client(real_server: Any) -> Iterator[OpenAI]:
    """OpenAI's own client of a real engine."""
    with openai_client(real_server) as it:
        yield it
