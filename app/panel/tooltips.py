"""A sentence for each number of the panel."""

from __future__ import annotations

TABLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "activity",
        ("activity",),
        "What the engine does now: it loads a pair, is ready, reads the prompt, writes, or you "
        "wait for it; then the tokens of this reply.",
    ),
    (
        "target, draft",
        ("pair",),
        "The model whose text you get, and the small one that guesses ahead for it.",
    ),
    (
        "× plain",
        ("speed head",),
        "This reply's speed over plain decoding's: what the same model would give without "
        "speculation, from what its passes were measured to cost.",
    ),
    (
        "tok/s, reply, TTFT",
        ("speed",),
        "Tokens a second over the last second or so, and over the whole reply; time to its first "
        "token.",
    ),
    (
        "history",
        ("history",),
        "Speed of decoding, a column for each half second, the newest on the right; columns "
        "change colour above the plain speed.",
    ),
    ("▴", ("marks",), "Where you changed a setting, and which."),
    (
        "ITL, p95",
        ("latency",),
        "Inter-token latency: the median time between tokens, and the time that 95 % of them stay "
        "under.",
    ),
    (
        "Speculation",
        ("speculation head",),
        "Which drafter the newest round used and how many tokens it drafted; plain now: none.",
    ),
    (
        "acceptance, now",
        ("acceptance", "acceptance now"),
        "The share of drafted tokens that the target accepted: over this reply, and over its last "
        "rounds.",
    ),
    (
        "by position",
        ("positions", "axis"),
        "The same for the first drafted token of a round, the second, and so on.",
    ),
    (
        "tok/pass",
        ("passes",),
        "Tokens that one pass of the target gives, its own included; plain decoding gives 1.00.",
    ),
    ("method, depth", ("set",), "What you have set; auto leaves it to the engine."),
    ("why", ("why",), "Why the newest round drafted as it did, or why it did not."),
    (
        "context",
        ("context", "room head"),
        "Tokens of this conversation that the model holds, of those that it can hold.",
    ),
    (
        "memory",
        ("memory", "plan"),
        "Memory in use by the engine, of what this machine gives it; ┃ is what the pair needs once "
        "its context is full.",
    ),
    (
        "W",
        ("power", "energy head"),
        "Watts of each part of the chip, other programs' included; all is the whole machine.",
    ),
    (
        "J/token",
        ("joules",),
        "Energy for a token of this reply: gross, and net of what the idle machine takes.",
    ),
    (
        "J/token, plain",
        ("joules of plain",),
        "Gross energy for a token of this session's plain replies; A/B measures it.",
    ),
    (
        "exactness",
        ("badge",),
        "What you can rely on: greedy and keyed replies are the very text that plain decoding "
        "gives, the block and match rules draw from the same distribution.",
    ),
    (
        "self-test",
        ("trust head",),
        "When macspec check last compared this pair with plain decoding, token by token.",
    ),
    (
        "kernels",
        ("kernels",),
        "What computes: macspec's own Metal kernels, MLX's, or the reference.",
    ),
)

PANEL: tuple[tuple[str, str], ...] = tuple((name, sentence) for name, _, sentence in TABLE)
"""Names as they stand in the panel, and what they mean, for the help."""

EXPLAINED: dict[str, str] = {block: sentence for _, blocks, sentence in TABLE for block in blocks}
"""The same by block."""
