"""The lint refuses what Apple's compiler refuses, and nothing that MLX's own kernels do."""

from __future__ import annotations

import mlx.core as mx
import pytest
from harness import Fault, inline, run
from harness.headers import flattened
from harness.lint import lint
from harness.mlx_kernels import QUANTIZED
from harness.text import parse

from macspec.metal.kernel import Launch


def findings(body: str, header: str = "") -> tuple[str, ...]:
    signature = "[[kernel]] void k(\n  const device float* x [[buffer(0)]]) {\n"
    return lint(parse("k", f"{header}\n{signature}{body}\n}}\n", ""))


REFUSED = {
    "goto": ("again: goto again;", ""),
    "double": ("double y = 0;", ""),
    "lambda": ("auto f = [](float v) { return v; };", ""),
    "lambda as argument": ("apply([](float v) { return v; });", ""),
    "static variable": ("static int calls = 0;", ""),
    "static variable in a helper": ("", "inline int f() { static int calls = 0; return calls; }"),
    "static constant": ("static constexpr int four = 4;", ""),
    "local constant": ("constant float table[2] = {1, 2};", ""),
    "unqualified pointer": ("float y = 0; float* p = &y;", ""),
    "unqualified constant pointer": ("const float* p = nullptr;", ""),
    "unqualified reference": ("float y = 0; const float& z = y;", ""),
    "unqualified deduced reference": ("float y = 0; auto& z = y;", ""),
    "unqualified parameter": ("", "inline float f(float* p) { return *p; }"),
    "second parameter": ("", "inline float f(int i, const uint4& p) { return p[i]; }"),
    "unqualified result": ("", "struct S { float v; };\ninline S* f();"),
    "template parameter": ("", "template <typename E> inline E f(const E* p) { return *p; }"),
    "own type": ("", "struct S { float v; };\ninline float f(S& s) { return s.v; }"),
    "global": ("", "int counter = 0;"),
    "global constant expression": ("", "constexpr int WIDTH = 32;"),
    "global table": ("", "const float table[] = {1, 2, 3};"),
    "global template": ("", "template <typename T> constexpr int size_v = sizeof(T);"),
    "static member": ("", "struct S { static constexpr int n = 4; };"),
    "static after a default": (
        "",
        "template <int N = 4>\ninline int f(int i = N) { static int calls = 0; return calls; }",
    ),
    "static in a loop": ("for (int i = 0; i < 4; i++) { if (i == 2) { static int n = 0; } }", ""),
    "global after a function": ("", "inline int f(int i = 0) { return i; }\nint counter;"),
    "group memory in a helper": ("", "inline void f() { if (true) { threadgroup float t[4]; } }"),
    "new": ("thread int* p = new int;", ""),
    "exception": ("throw 1;", ""),
    "virtual": ("", "struct S { virtual void f(); };"),
    "library": ("std::max(1, 2);", ""),
}

ACCEPTED = {
    "address spaces": (
        "threadgroup float t[4]; const device float* p = x; device const float* q = x; "
        "if (true) { threadgroup float u; u = 0; } threadgroup float* r = t; "
        "thread float y = 0; thread float& z = y; float thread* w = &y;",
        "",
    ),
    "products and masks": ("float y = x[0] * x[1]; int i = 3 & 4; bool b = i && (y * y > 2);", ""),
    "calls with products": ("float a = 1, b = 2; float y = max(a * b, b * a);", ""),
    "indices": ("int i[3] = {1, 2, 3}; int j = i[i[0]]; return;", ""),
    "constants": ("constexpr int n = 4; const float h[2] = {1, 2};", "constant int WIDTH = 32;"),
    "constant tables": (
        "",
        "constant constexpr float table[3] = {1, 2, 3};\nconstant float h = 1;",
    ),
    "types": (
        "",
        "enum E : uint { A = 1, B };\nstruct S { float v = 1; int n[2]; };\nusing F = float;",
    ),
    "templates": (
        "",
        "template <typename T, int N = 4>\ninline T f(const device T* p) {\n"
        "  T sum = T(0);\n  for (int i = 0; i < N; i++) sum += p[i];\n  return sum;\n}",
    ),
    "defaults": ("", "template <int N = 4>\ninline int f(int i = N);\ninline int g(int j = 1);"),
    "methods": ("", "struct S {\n  float v;\n  float twice() const { return 2 * v; }\n};"),
    "constant member": ("", "struct S { static constant constexpr int n = 4; };"),
    "words in comments": ("// double goto\n/* static int* p */ int i = 0;", "// std::max"),
    "attributes": ("", "[[clang::noinline]] inline int f() { return 1; }"),
    "defines": ("", "#define WIDE(x) \\\n  static int x\n"),
    "declared first": ("", "inline float f(const thread float* p);\nstruct S;"),
    "namespace": ("", "namespace n {\nconstant int k = 1;\ninline int f() { return k; }\n}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert len(findings(*REFUSED[name])) == 1


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert findings(*ACCEPTED[name]) == ()


def test_place() -> None:
    text = 'int f();\n#line 40 "noise.metal"\n\n  float* g();\nvoid k() {\n}\n'
    assert lint(parse("k", text, "")) == ("noise.metal:41:3: float* names no address space",)


def test_mlx_headers_pass() -> None:
    """Text that is known to compile; a macro hides ``constant`` from the lint in some lines."""
    text = flattened(*QUANTIZED, "softmax.h", "sdpa_vector.h", "gemv.h", "sort.h")
    lines = text.split("\n")
    assert len(lines) > 4000
    found = [int(line.split(":")[1]) for line in lint(parse("k", f"{text}void k() {{\n}}\n", ""))]
    left = [lines[number - 1] for number in found]
    assert [line for line in left if "MTL_CONST" not in line and "STEEL_CONST" not in line] == []


LAUNCH = Launch((8, 1, 1), (8, 1, 1), (), ((8,),), (mx.float32,))


def launch(source: str, header: str) -> None:
    run(inline(source, ("x",), ("y",), header=header), [mx.arange(8, dtype=mx.float32)], LAUNCH)


def test_run_lints() -> None:
    with pytest.raises(Fault, match=r"kernel.metal:\d+:\d+: Metal has no double") as caught:
        launch("uint i = thread_position_in_grid.x; y[i] = double(x[i]);", "")
    assert caught.value.layer == "lint"


def test_recursion() -> None:
    header = (
        "inline int even(int n);\n"
        "inline int odd(int n) { return n == 0 ? 0 : even(n - 1); }\n"
        "inline int even(int n) { return n == 0 ? 1 : odd(n - 1); }\n"
    )
    with pytest.raises(Fault, match=r"Metal has no recursion: .*even.* calls .*odd.*"):
        launch("uint i = thread_position_in_grid.x; y[i] = x[i] + even(4);", header)


def test_calls_that_do_not_recur() -> None:
    """Overloads and instances of one template call each other."""
    header = (
        "template <int N> inline float sum(float x) { return x + sum<N - 1>(x); }\n"
        "template <> inline float sum<0>(float x) { return 0; }\n"
        "inline float twice(float x) { return 2 * x; }\n"
        "inline float twice(int x) { return twice(float(x)); }\n"
    )
    launch("uint i = thread_position_in_grid.x; y[i] = sum<3>(x[i]) + twice(1);", header)
