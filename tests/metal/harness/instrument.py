"""Puts a call of the runtime before every load and store of a kernel in LLVM's textual form.

Threadgroup variables get a gap behind them, and the module a table of their names and sizes and
one of the places of its accesses.

Clang compiles with -fsanitize=thread, so that no pass invents an access that the text does not
make; its own hooks are off, because they leave out vectors of unusual width and reads that a write
to the same place follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FLAGS = (
    "-fsanitize=thread",
    *(
        word
        for name in ("memory-accesses", "func-entry-exit", "atomics", "memintrinsics")
        for word in ("-mllvm", f"-tsan-instrument-{name}=0")
    ),
)
HOOKS = """
declare void @msl_access(ptr, i32, i32, i32)
declare void @msl_access_many(ptr, i64, i32, i32)
"""
READS, WRITES = 1, 2
BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}

TYPE = r"(?P<type><\d+ x \w+>|\w+)"
NAME = r'[%@](?:[\w.$-]+|"[^"]*")'
EXPRESSION = r"getelementptr [^()]*\((?:[^()]|\([^()]*\))*\)"
POINTER = rf"ptr (?P<pointer>{NAME}|{EXPRESSION})"
LOAD = re.compile(rf"  {NAME} = load (?:volatile )?{TYPE}, {POINTER}, align")
STORE = re.compile(rf"  store (?:volatile )?{TYPE} .*, {POINTER}, align")
BLOCK = re.compile(
    rf"  (?:tail )?call void @llvm\.(?P<what>memcpy|memmove|memset)\.[\w.]+\("
    rf"ptr (?:[a-z]\w*(?:\([^)]*\))? |align \d+ )*(?P<to>{NAME}|{EXPRESSION}), "
    rf"(?:ptr (?:[a-z]\w*(?:\([^)]*\))? |align \d+ )*(?P<from>{NAME}|{EXPRESSION})|i8 \S+), "
    rf"i64 (?P<size>\S+), i1"
)
FUNCTION = re.compile(r"define .*#(\d+)[^#]*\{$")
ATTRIBUTES = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.M)
ALLOCA = re.compile(rf"  ({NAME}) = alloca ")
OFFSET = re.compile(rf"  ({NAME}) = getelementptr [^,]*, ptr ({NAME}),")
DEBUG = re.compile(r"!dbg !(\d+)")
PLACE = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+), (?:column: (\d+), )?scope: !(\d+)"
    r"(?:, inlinedAt: !(\d+))?",
    re.M,
)
SCOPE = re.compile(r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock\w*)\((.*)\)$", re.M)
FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', re.M)
VARIABLE = re.compile(r'^@(\S+) = .*?\bglobal (.*?) \w+, section "[^"]*msl_tg"', re.M)
USED = re.compile(r"^(@llvm\.(?:compiler\.)?used = appending global )\[(\d+) x ptr\] \[", re.M)
GAP = 64
"""Bytes behind each threadgroup variable that belong to none."""


class UnknownAccessError(Exception):
    """A load or store that is not understood, and so would go unseen."""


@dataclass
class Places:
    """Where the code of a module comes from."""

    locations: dict[str, tuple[int, int, str, str | None]]
    files: dict[str, str]
    """The name of a scope's file."""

    @classmethod
    def of(cls, module: str) -> Places:
        names: dict[str, str] = dict(FILE.findall(module))
        files = {}
        for number, fields in SCOPE.findall(module):
            if found := re.search(r"\bfile: !(\d+)", fields):
                files[number] = names.get(found[1], "")
        locations = {
            found[1]: (int(found[2]), int(found[3] or 0), found[4], found[5])
            for found in PLACE.finditer(module)
        }
        return cls(locations, files)

    def kernel_line(self, number: str) -> tuple[int, int]:
        """Line and column in the kernel's own text, of the innermost call that stands there."""
        at: str | None = number
        while at is not None and at in self.locations:
            line, column, scope, caller = self.locations[at]
            if self.files.get(scope, "").endswith("kernel.metal"):
                return line, column
            at = caller
        return 0, 0


@dataclass
class Instrumented:
    """A module with hooks, and in it ``msl_sites``: line and column of each number (0: unknown)."""

    module: str = ""
    sites: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])


def _bytes(kind: str) -> int:
    count, scalar = 1, kind
    if found := re.fullmatch(r"<(\d+) x (\w+)>", kind):
        count, scalar = int(found[1]), found[2]
    bits = int(scalar[1:]) if re.fullmatch(r"i\d+", scalar) else BITS.get(scalar)
    if bits is None:
        raise UnknownAccessError(kind)
    return (count * bits + 7) // 8


def instrument(module: str) -> Instrumented:
    """Add the hooks to every function that ``-fsanitize=thread`` marks."""
    checked = {number for number, words in ATTRIBUTES.findall(module) if "sanitize_thread" in words}
    places = Places.of(module)
    result = Instrumented()
    numbers: dict[tuple[int, int], int] = {(0, 0): 0}

    def site(line: str) -> int:
        found = DEBUG.search(line)
        place = places.kernel_line(found[1]) if found else (0, 0)
        if place not in numbers:
            numbers[place] = len(result.sites)
            result.sites.append(place)
        return numbers[place]

    module = _with_gaps(module)
    out: list[str] = []
    inside, private = False, set[str]()
    for line in module.split("\n"):
        if line.startswith("define "):
            found = FUNCTION.match(line)
            inside, private = bool(found and found[1] in checked), set()
        elif inside and line.startswith("  "):
            _hook(line, private, out, site)
        out.append(line)
    sites = ", ".join(f"i32 {line}, i32 {column}" for line, column in result.sites)
    out += [
        HOOKS,
        f"@msl_sites = constant [{2 * len(result.sites)} x i32] [{sites}]",
        f"@msl_site_count = constant i32 {len(result.sites)}",
    ]
    result.module = "\n".join(out)
    return result


def _with_gaps(module: str) -> str:
    """Add the gaps, and the table that the runtime reads."""
    found = list(VARIABLE.finditer(module))
    names, rows, gaps = [], [], []
    for number, variable in enumerate(found):
        symbol, kind = variable[1], variable[2]
        item = kind
        while array := re.fullmatch(r"\[\d+ x (.*)\]", item):
            item = array[1]
        name = _source_name(symbol)
        names.append(f'@msl_name_{number} = private constant [{len(name) + 1} x i8] c"{name}\\00"')
        rows.append(
            f"{{ ptr, i64, i64, i64, ptr }} {{ ptr @{symbol}, i64 {_sizeof(kind)}, "
            f"i64 {_sizeof(item)}, i64 {_grain(item)}, ptr @msl_name_{number} }}"
        )
        gaps.append(f"ptr @msl_gap_{number}")
    table = f"[{len(rows)} x {{ ptr, i64, i64, i64, ptr }}]"
    ends = [
        *names,
        f"@msl_variables = constant {table} [{', '.join(rows)}]",
        f"@msl_variable_count = constant i32 {len(rows)}",
    ]
    if not found:
        return "\n".join([module, *ends])
    parts, at = [], 0
    for number, variable in enumerate(found):
        end = module.index("\n", variable.end())
        section = re.search(r'section "[^"]*"', variable[0])
        assert section
        parts += [
            module[at:end],
            f"\n@msl_gap_{number} = internal global [{GAP} x i8] zeroinitializer, {section[0]}",
        ]
        at = end
    module = "".join([*parts, module[at:]])
    used = USED.search(module)
    assert used, "threadgroup variables are declared used"
    more = f"{used[1]}[{int(used[2]) + len(gaps)} x ptr] [{', '.join(gaps)}, "
    module = module[: used.start()] + more + module[used.end() :]
    return "\n".join([module, *ends])


def _sizeof(kind: str) -> str:
    return f"ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64)"


def _grain(kind: str) -> int:
    """Bytes of a scalar, up to 4; of a struct 1."""
    scalar = found[1] if (found := re.fullmatch(r"<\d+ x (\w+)>", kind)) else kind
    try:
        return min(_bytes(scalar), 4)
    except UnknownAccessError:
        return 1


def _source_name(symbol: str) -> str:
    """What a variable of a function is called in the text, from its mangled name."""
    for found in reversed(list(re.finditer(r"E(\d+)(?=\D)", symbol))):
        name = symbol[found.end() : found.end() + int(found[1])]
        if re.fullmatch(r"(_\d+|__\d+_)?", symbol[found.end() + int(found[1]) :]):
            return name
    return "threadgroup memory"


def _hook(line: str, private: set[str], out: list[str], site: Callable[[str], int]) -> None:
    if found := ALLOCA.match(line) or OFFSET.match(line):
        if found.lastindex == 1 or found[2] in private:
            private.add(found[1])
    elif " = load " in line or line.startswith("  store "):
        kind = WRITES if line.startswith("  store ") else READS
        found = (STORE if kind == WRITES else LOAD).match(line)
        if not found:
            raise UnknownAccessError(line)
        if found["pointer"] not in private:
            size, number = _bytes(found["type"]), site(line)
            out.append(
                f"  call void @msl_access(ptr {found['pointer']}, i32 {size}, i32 {kind}, "
                f"i32 {number})"
            )
    elif found := BLOCK.match(line):
        for side, kind in (("from", READS), ("to", WRITES)):
            if found[side] and found[side] not in private:
                out.append(
                    f"  call void @msl_access_many(ptr {found[side]}, i64 {found['size']}, "
                    f"i32 {kind}, i32 {site(line)})"
                )
    elif re.search(r"@llvm\.(mem|masked)| cmpxchg | atomicrmw ", line):
        raise UnknownAccessError(line)
