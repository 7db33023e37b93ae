"""A rank other than 0: it holds its part of a target and does what the engine says, command by
command."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..assets import pocket
from ..device import prepare
from ..errors import MacspecError, ModelNotFoundError
from ..models.cached import TreePass
from ..models.files import locate
from ..models.loading import Model, open_model, read_weights
from ..models.memory import device_limit, wired
from ..power import awake
from ..verification import Tree
from ..worker.registry import Registry
from .files import difference, digests
from .link import BEAT, Link
from .lost import PATIENCE
from .model import SharedModel
from .sharding import spread
from .start import Start


class Follower:
    """Serves the engine until it leaves.

    Args:
        core: MLX's group of the ranks.
    """

    def __init__(self, link: Link, core: Any, registry: Registry | None = None) -> None:
        self._link, self._core = link, core
        self._registry = registry or Registry()
        self._targets: dict[int, Model] = {}
        """Those that were opened since the last one was read."""
        self._models: dict[int, SharedModel] = {}
        """One for each conversation, by the numbers that the engine gives them."""
        self._trees: dict[int, TreePass] = {}

    def run(self) -> None:
        """Do what the engine says; it ends this process by hanging up."""
        while True:
            name, number, *arguments = self._link.receive()
            try:
                done = getattr(self, f"_do_{name}")(*arguments)
            except MacspecError as error:
                if number is None:  # nobody waits for it, and the ranks are out of step
                    raise
                self._link.send("failed", number, str(error))
            else:
                if number is not None:
                    self._link.send("done", number, done)

    def _do_open(
        self, target: int, name: str | None, trust: bool, how: str, expected: Mapping[str, str]
    ) -> None:
        """Open a target under a number, but do not read it; None: the built-in one."""
        folder = self._located(name, trust)
        if (other := difference(expected, digests(folder))) is not None:
            raise ModelNotFoundError(
                f"{name or 'the built-in target'} is not the same there: {other}; fetch or copy it "
                "again"
            )
        model = open_model(name or "built-in target", folder, trust_remote_code=trust)
        spread(model.module, self._core, how)
        self._targets[target] = model

    def _located(self, name: str | None, trust: bool) -> Path:
        if name is None:
            built_in: Path = pocket().target
            return built_in
        try:
            return locate(name, trust_remote_code=trust)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"{name} is not there: copy the folder to the same place, or for a Hugging Face "
                f"id: macspec models pull {name}"
            ) from error

    def _do_load(self, target: int, planned: list[int]) -> None:
        """Read a target's weights, instead of those of all others.

        Args:
            planned: bytes that each rank but 0 needs.
        """
        model = self._targets[target]
        if len(self._targets) > 1:
            self._targets = {target: self._targets[target]}
            self._models.clear()
            self._trees.clear()
            mx.clear_cache()
        self._registry.enter(model.name, planned[self._core.rank() - 1], device_limit())
        read_weights(model)

    def _do_model(
        self, number: int, target: int, vocabulary: int, kv_bits: int | None
    ) -> list[Any]:
        """Begin a conversation, with empty caches."""
        model = self._targets[target]
        made = SharedModel(self._core, model.module, vocabulary, kv_bits=kv_bits)
        self._models[number] = made
        return made.ways

    def _do_forget(self, number: int) -> None:
        self._models.pop(number, None)
        self._trees.pop(number, None)

    def _do_show(self, number: int, wanted: list[int]) -> str | None:
        return self._models[number].show(wanted).tap.reason

    def _do_hide(self, number: int) -> None:
        self._models[number].hide()

    def _do_read(self, number: int, count: int, boundaries: list[int]) -> None:
        self._models[number].read([0] * count, boundaries)

    def _do_logits(self, number: int, count: int, rows: int, early: bool) -> None:
        dispatch = mx.async_eval if early else None
        tokens = mx.zeros(count, mx.uint32)
        mx.async_eval(self._models[number].logits(tokens, rows, dispatch))

    def _do_rollback(self, number: int, length: int) -> None:
        self._models[number].rollback(length)

    def _do_trees(self, number: int) -> str | None:
        trees = self._trees[number] = self._models[number].trees()
        return trees.reason

    def _do_tree(self, number: int, unread: int, parents: list[int]) -> None:
        tree = Tree(mx.zeros(len(parents), mx.uint32), tuple(parents))
        mx.async_eval(self._trees[number].logits(mx.zeros(unread, mx.uint32), tree))

    def _do_keep(self, number: int, path: list[int]) -> None:
        self._trees[number].keep(path)


def follow(start: Start, link: Link) -> None:
    """Say how much memory models may have, join the others when all are there, and serve."""
    prepare()  # may take seconds: not while another rank joins already and gives no signs of life
    with awake(), wired():
        held = sum(it.planned for it in Registry().others())
        link.send(max(device_limit() - held, 0))
        link.receive()
        link.joining = True
        link.send("joins")
        core = start.join()
        link.send("joined")
        link.receive()
        link.joining = False
        follower = Follower(link, core)
        try:
            follower.run()
        except Exception:
            # MLX has lost the connection to a third rank, perhaps: that one is to be named.
            time.sleep(PATIENCE + BEAT)
            raise
