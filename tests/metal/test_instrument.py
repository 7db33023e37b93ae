"""Every form of access in LLVM's text gets its hook; a form that is not known is no silent gap."""

from __future__ import annotations

import pytest
from harness.instrument import UnknownAccessError, instrument

MODULE = """
@table = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
define void @checked(ptr %0, ptr %1) #0 {
  %2 = alloca [4 x float], align 16
  %3 = getelementptr inbounds [4 x float], ptr %2, i64 0, i64 1
BODY
  ret void
}
define void @unchecked(ptr %0) #1 {
  %2 = load float, ptr %0, align 4
  ret void
}
attributes #0 = { nounwind sanitize_thread uwtable }
attributes #1 = { nounwind uwtable }
!1 = !DIFile(filename: "kernel.metal", directory: "/")
!2 = !DIFile(filename: "shim/msl/matrix.h", directory: "/")
!3 = distinct !DISubprogram(name: "kernel", scope: !1, file: !1, line: 1)
!4 = distinct !DISubprogram(name: "load", scope: !2, file: !2, line: 1)
!5 = !DILocation(line: 7, column: 3, scope: !3)
!6 = !DILocation(line: 0, scope: !4, inlinedAt: !5)
!7 = !DILocation(line: 9, column: 1, scope: !3)
"""
READ, WRITE = 1, 2
ONE, MANY = "msl_access", "msl_access_many"

KNOWN = {
    "load float, ptr %0, align 4": [(ONE, "%0", "i32 4", READ)],
    "load volatile i8, ptr %0, align 1": [(ONE, "%0", "i32 1", READ)],
    "load <4 x bfloat>, ptr %0, align 8": [(ONE, "%0", "i32 8", READ)],
    "load <4 x i64>, ptr %0, align 32": [(ONE, "%0", "i32 32", READ)],
    "load <3 x float>, ptr %0, align 16": [(ONE, "%0", "i32 12", READ)],
    "load <4 x i1>, ptr %0, align 1": [(ONE, "%0", "i32 1", READ)],
    'load ptr, ptr @"a b", align 8': [(ONE, '@"a b"', "i32 8", READ)],
    "load i32, ptr getelementptr inbounds (i8, ptr @table, i64 4), align 4": [
        (ONE, "getelementptr inbounds (i8, ptr @table, i64 4)", "i32 4", READ)
    ],
    "store half 0xH3C00, ptr %1, align 2": [(ONE, "%1", "i32 2", WRITE)],
    "store <2 x float> <float 0.0, float 1.0>, ptr %1, align 8": [(ONE, "%1", "i32 8", WRITE)],
    "store i32 %x, ptr getelementptr (i8, ptr @t, i64 4), align 4": [
        (ONE, "getelementptr (i8, ptr @t, i64 4)", "i32 4", WRITE)
    ],
    "store ptr %0, ptr %1, align 8": [(ONE, "%1", "i32 8", WRITE)],
    "load float, ptr %2, align 4": [],
    "load float, ptr %3, align 4": [],
    "call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 4 captures(none) "
    "dereferenceable(64) %1, ptr align 4 %0, i64 64, i1 false)": [
        (MANY, "%0", "i64 64", READ),
        (MANY, "%1", "i64 64", WRITE),
    ],
    "tail call void @llvm.memmove.p0.p0.i64(ptr %2, ptr align 4 %0, i64 %n, i1 false)": [
        (MANY, "%0", "i64 %n", READ)
    ],
    "call void @llvm.memset.p0.i64(ptr align 4 %1, i8 0, i64 %n, i1 false)": [
        (MANY, "%1", "i64 %n", WRITE)
    ],
}
UNKNOWN = [
    "%9 = load { float, float }, ptr %0, align 4",
    "store [2 x float] %x, ptr %0, align 4",
    "%9 = load atomic i32, ptr %0 monotonic, align 4",
    "%9 = atomicrmw add ptr %0, i32 1 monotonic, align 4",
    "%9 = call <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr> %p, i32 4, <4 x i1> %m)",
    "call void @llvm.memset.element.unordered.atomic.p0.i32(ptr %0, i8 0, i32 16, i32 4)",
]


def hooks(line: str) -> list[str]:
    done = instrument(MODULE.replace("BODY", f"  {line}"))
    lines = done.module.split("\n")
    assert f"  {line}" in lines
    return [found for found in lines if found.startswith("  call void @msl_")]


@pytest.mark.parametrize("access", KNOWN)
def test_hooks(access: str) -> None:
    line = f"%9 = {access}" if access.startswith("load") else access
    want = [
        f"  call void @{hook}(ptr {pointer}, {size}, i32 {kind}, i32 1)"
        for hook, pointer, size, kind in KNOWN[access]
    ]
    assert hooks(f"{line}, !dbg !5") == want


@pytest.mark.parametrize("line", UNKNOWN)
def test_unknown(line: str) -> None:
    with pytest.raises(UnknownAccessError):
        hooks(line)


def test_places() -> None:
    """The kernel's line, through inlined code; the same number for the same place."""
    body = "\n".join(
        f"  %{8 + n} = load float, ptr %0, align 4{debug}"
        for n, debug in enumerate([", !dbg !5", ", !dbg !6", ", !dbg !7", ""])
    )
    done = instrument(MODULE.replace("BODY", body))
    assert done.sites == [(0, 0), (7, 3), (9, 1)]
    calls = [line for line in done.module.split("\n") if line.startswith("  call")]
    assert [line.rsplit(" ", 1)[1] for line in calls] == ["1)", "1)", "2)", "0)"]


def test_gaps() -> None:
    """Behind every threadgroup variable, and a table of their names."""
    variables = (
        "@_ZZ1kIfEvPfE5table = linkonce_odr hidden global [3 x float] zeroinitializer, "
        'section "msl_tg", comdat, align 4\n'
        '@_ZZ1kIfEvPfE1v_0 = internal global <2 x half> undef, section "msl_tg", align 4\n'
        "@llvm.compiler.used = appending global [2 x ptr] "
        '[ptr @_ZZ1kIfEvPfE5table, ptr @_ZZ1kIfEvPfE1v_0], section "llvm.metadata"\n'
    )
    module = instrument(variables + MODULE.replace("BODY", "")).module
    gap = '@msl_gap_{} = internal global [64 x i8] zeroinitializer, section "msl_tg"'
    lines = module.split("\n")
    assert (lines[1], lines[3]) == (gap.format(0), gap.format(1))
    assert "[4 x ptr] [ptr @msl_gap_0, ptr @msl_gap_1, ptr @_ZZ1kIfEvPfE5table, " in lines[4]
    assert '[6 x i8] c"table\\00"' in module
    assert '[2 x i8] c"v\\00"' in module
    assert "@msl_variable_count = constant i32 2" in module
