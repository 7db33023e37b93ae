"""Every text that macspec can launch is exported for Apple's compiler."""

from __future__ import annotations

import re

import export
import pytest
import quantized
from harness.build import check
from harness.headers import flattened
from harness.text import parse

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


def test_every_text_has_a_name_of_its_own(texts: dict[str, tuple[str, str]]) -> None:
    """Constants stand in it, so a negative one would give no name."""
    for name, (_, source) in texts.items():
        assert name.isidentifier()
        assert source.count(f"[[kernel]] void {name}(") == 1
        assert "template [[host_name" not in source


DECLARED = re.compile(
    r"^(?:inline|constexpr) [\w<> ]*?(\w+)\(|^(?:struct|enum) (\w+)|^constant constexpr \w+ (\w+)|"
    r"(?:[{,] )([A-Z]\w*) = ",
    re.M,
)
"""A name that a header declares."""


def test_no_name_of_a_header_meets_another(texts: dict[str, tuple[str, str]]) -> None:
    """As if Metal and MLX declared everything that the kernels' headers do."""
    declared = 0
    for kernel, (name, source) in {it[0]: (name, it[1]) for name, it in texts.items()}.items():
        header = source.partition("[[kernel]]")[0]
        names = {next(filter(None, found.groups())) for found in DECLARED.finditer(header)}
        declared += len(names)
        others = "".join(f"constant constexpr int {it} = 0;" for it in sorted(names))
        line = f"namespace metal {{ {others} }} {others}"
        text = parse(name, f'#line 1 "others"\n{line}\n{source}', flattened())
        assert not check(text), kernel
    assert declared > 50


def test_files_hold_every_kernel_with_its_headers(texts: dict[str, tuple[str, str]]) -> None:
    files = export.files(texts)
    states = {gated_delta.KERNEL, mamba2.KERNEL}
    every = {
        *matmul.KERNELS.values(),
        *states,
        *verify_attention.KERNELS,
        *accept.KERNELS,
        *walks.KERNELS,
    }
    kernels = {kernel.name for kernel in every}
    assert {name.partition("-")[0] for name in files} == kernels
    for text in files.values():
        assert "typedef half float16_t;" in text
        assert '#include "' not in text
    assert sum(text.count("[[kernel]] void ") for text in files.values()) == len(texts)
