"""Every text that macspec can launch is exported for Apple's compiler."""

from __future__ import annotations

from pathlib import Path

import export
import pytest
import quantized

from macspec.metal import accept, draft_sample, matmul, verify_attention
from macspec.metal.self_check import check_of
from macspec.metal.variants import variants_for


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Of all exported kernels, as MLX calls them."""
    with export.recorded() as texts:
        export.launch_all()
    return set(texts)


@pytest.mark.parametrize("strict", [False, True])
def test_what_a_pair_launches_is_exported(names: set[str], strict: bool) -> None:
    target, variants = variants_for(quantized.pair(bits=3), strict=strict)
    with export.recorded() as texts:
        for variant in variants:
            check = check_of(variant, target.matmuls)
            check.ours(check.start)
    assert texts
    assert texts.keys() <= names


def test_files_hold_every_kernel_with_its_headers(tmp_path: Path, names: set[str]) -> None:
    export.main(tmp_path)
    files = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    every = {matmul.QMV, matmul.QMM, *verify_attention.KERNELS, *accept.KERNELS}
    kernels = {kernel.name for kernel in (*every, *draft_sample.KERNELS)}
    assert {name.partition("-")[0] for name in files} == kernels
    for text in files.values():
        assert text.count("[[kernel]] void ") == 1
        assert "typedef half float16_t;" in text
        assert '#include "' not in text
    exported = sum(text.count('[[host_name("custom_kernel_') for text in files.values())
    assert exported == len([name for name in names if "accept_walk" not in name])
