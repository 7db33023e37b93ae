from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from serving import MODEL, ScriptedClient, Settings, serving
from tinymodels import noisy_folder, saved

from macspec.worker import PairChoice, ProcessEngine


@pytest.fixture
def engine() -> ScriptedClient:
    return ScriptedClient()


@pytest.fixture
def server(engine: ScriptedClient) -> Iterator[Any]:
    with serving(engine) as it:
        yield it


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessEngine]:
    """A child process with a tiny pair, in the precision in which equality is exact."""
    folder = tmp_path_factory.mktemp("pair")
    target = saved("llama", folder / "target")
    draft = noisy_folder(target, folder / "draft")
    client = ProcessEngine(log=folder / "engine.log")
    choice = PairChoice(str(target), str(draft), context=1024, learn=False)
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


def openai_client(server: Any) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
