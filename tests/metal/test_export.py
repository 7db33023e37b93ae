"""Every text that macspec can launch is exported for Apple's compiler."""

from __future__ import annotations

import export
import pytest
import quantized

from macspec.metal import accept, gated_delta, mamba2, matmul, verify_attention, walks
from macspec.metal.checks import check_of
from macspec.metal.variants import variants_for


@pytest.fixture(scope="module")
def texts() -> dict[str, tuple[str, str]]:
    """All exported kernels, by the names that MLX gives them."""
    with export.recorded() as found:
        export.launch_all()
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_what_a_pair_launches_is_exported(texts: dict[str, tuple[str, str]], strict: bool) -> None:
    _, variants = variants_for(quantized.pair(bits=3), strict=strict)
    with export.recorded() as found:
        for variant in variants:
            check = check_of(variant)
            check.ours(check.start)
    assert found
    assert found.items() <= texts.items()


def test_no_argument_of_a_template_is_negative(texts: dict[str, tuple[str, str]]) -> None:
    """MLX before 0.32.4 writes the sign into the kernel's name, which then does not compile."""
    arguments = {name: source.rpartition(f"{name}<")[2] for name, (_, source) in texts.items()}
    assert any("1024" in it or "512" in it for it in arguments.values()), "these are arguments"
    assert [name for name, it in arguments.items() if "-" in it.partition(">")[0]] == []


def test_files_hold_every_kernel_with_its_headers(texts: dict[str, tuple[str, str]]) -> None:
    files = export.files(texts)
    states = {gated_delta.KERNEL, mamba2.KERNEL}
    every = {
        matmul.QMV,
        matmul.QMM,
        matmul.QMT,
        *states,
        *verify_attention.KERNELS,
        *accept.KERNELS,
        *walks.KERNELS,
    }
    kernels = {kernel.name for kernel in every}
    assert {name.partition("-")[0] for name in files} == kernels
    for text in files.values():
        assert text.count("[[kernel]] void ") == 1
        assert "typedef half float16_t;" in text
        assert '#include "' not in text
    exported = sum(text.count('[[host_name("custom_kernel_') for text in files.values())
    assert exported == sum(kernel != "accept_walk" for kernel, _ in texts.values())
