"""MLX's own kernel headers, from the installed wheel: the preamble of every custom kernel."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import mlx.core as mx

FOLDER = Path(mx.__file__).parent / "include"
KERNELS = "mlx/backend/metal/kernels/"
REPLACED = {
    # The shim has these overloads; logging needs Metal 3.2; complex numbers need constructors for
    # each address space, which clang has for OpenCL only.
    f"{KERNELS}bf16_math.h": "",
    f"{KERNELS}logging.h": "",
    f"{KERNELS}complex.h": """
template <typename T> struct complex_t {
  T real, imag;
  constexpr complex_t(T r, T i) : real(r), imag(i) {}
  constexpr complex_t() : real(0), imag(0) {}
};
typedef complex_t<float> complex64_t;
""",
}
INCLUDE = re.compile(r'\s*#include\s+"(mlx/.*?)"')


def _flatten(path: str, seen: set[str], shim: bool) -> str:
    if path in seen:
        return ""
    seen.add(path)
    if shim and path in REPLACED:
        return REPLACED[path]
    lines = []
    for line in (FOLDER / path).read_text(encoding="utf-8").splitlines():
        if included := INCLUDE.match(line):
            lines.append(_flatten(included[1], seen, shim))
        elif "#pragma once" not in line:
            lines.append(line)
    text = "\n".join(lines)
    if not shim:
        return text + "\n"
    if path.endswith("type_traits.h"):
        # Specialisations for each address space collide once the spaces are gone.
        text = re.sub(
            r"template <typename T>\nstruct pointer_element<(device|constant|threadgroup) T\*> "
            r"\{.*?\};",
            "",
            text,
            flags=re.S,
        )
    # Array parameters in an address space: pointers in all but spelling.
    return re.sub(r"(constant const int64_t) strides\[[23]\]", r"\1* strides", text) + "\n"


@functools.cache
def flattened(*names: str, shim: bool = True) -> str:
    """``utils.h`` and then the named headers of ``kernels/``, as one text.

    Args:
        shim: altered where the harness's shim needs it; False: as Apple's compiler gets them.
    """
    seen: set[str] = set()
    return "".join(_flatten(KERNELS + name, seen, shim) for name in ("utils.h", *names))
