"""What can be asked of ``macspec models``: its actions, their arguments and their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DESCRIPTION = """\
Show this machine's memory, the models in the Hugging Face cache with what they
need and which can draft for which, and pairs that can be fetched.
"""

EXAMPLE = """\
example:
  macspec models
"""

PULL = """\
Fetch a pair of the catalogue, or any model of the Hugging Face hub. A broken
connection is taken up again, now and the next time; every file is checked
against the hub's checksum. Nothing is fetched that the disk cannot hold.
"""

REMOVE = """\
Delete models from the Hugging Face cache, which other programs share.
"""

PLAN = """\
Say what a pair needs: weights, caches at a context, and the buffers of the
largest pass, against what this machine gives to models. A Mac gives its GPU
two thirds of up to 32 GB, and three quarters of more; the plan says how to
raise that where it would help. Exit status 0: it fits; 1: it does not.
"""

QUANTIZE = """\
Make a model smaller with mlx-lm: 4 bits a weight for a target, 8 for a draft
model. A draft model is small, so more bits cost little time and memory, and
every guess that coarse weights spoil costs a share of the target's whole pass.
"""

CONVERT = """\
Make a model into the format that mlx-lm loads, in full precision.
"""


def add_models_commands(commands: Any, whole: Callable[..., Callable[[str], int]]) -> None:
    """Add ``models`` to the command line.

    Args:
        commands: where sub-commands are added.
        whole: makes the argument type of a whole number in a range.
    """
    models = commands.add_parser(
        "models",
        usage="macspec models [ACTION] [options]",
        help="models at hand, what fits this machine, and fetching more",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    models.set_defaults(command="models", action="list", json=False)
    models.add_argument("--json", action="store_true", help="one JSON object a line")
    actions = models.add_subparsers(title="actions", metavar="ACTION", prog="macspec models")

    def action(name: str, arguments: str, text: str, description: str, example: str) -> Any:
        it = actions.add_parser(
            name,
            usage=f"macspec models {name} {arguments}",
            help=text,
            description=description,
            epilog=f"example:\n  macspec models {name} {example}\n",
        )
        it.set_defaults(action=name)
        return it

    it = action("pull", "PAIR... [options]", "fetch a pair or a model", PULL, "qwen3-8b")
    names = "a pair's name, or an id on the hub (id@revision pins one)"
    it.add_argument("names", metavar="PAIR", nargs="+", help=names)
    it.add_argument("--json", action="store_true", help="one JSON event a line")

    it = action("rm", "PAIR... [options]", "delete models", REMOVE, "qwen3-8b")
    it.add_argument("names", metavar="PAIR", nargs="+", help="a pair's name, or an id on the hub")
    it.add_argument("--yes", action="store_true", help="do not ask")

    it = action(
        "plan",
        "TARGET [options]",
        "what a pair needs in memory",
        PLAN,
        "qwen3-8b --context 16384",
    )
    it.add_argument("target", metavar="TARGET", help="a pair's name, a folder, an id or built-in")
    it.add_argument("--draft", metavar="MODEL", help="a folder or an id; default: the pair's")
    it.add_argument(
        "--context",
        metavar="N",
        type=whole(1),
        help="positions to plan for; default: the target's own, or as many as fit",
    )
    it.add_argument(
        "--kv-bits",
        metavar="{2,4,8}",
        type=int,
        choices=(2, 4, 8),
        help="quantize the target's cache; default: the model's own precision",
    )

    it = action(
        "quantize",
        "SOURCE FOLDER [options]",
        "make a model smaller",
        QUANTIZE,
        "./my-model ./my-model-4bit",
    )
    _places(it)
    it.add_argument("--bits", metavar="N", type=int, choices=(2, 3, 4, 5, 6, 8), help=_bits())
    it.add_argument(
        "--for",
        dest="role",
        choices=("target", "draft"),
        default="target",
        help="what the model is to be (default: target)",
    )
    it.add_argument(
        "--group-size",
        metavar="N",
        type=int,
        choices=(32, 64, 128),
        default=64,
        help="weights that share a scale: 32, 64 or 128 (default: 64)",
    )

    it = action(
        "convert",
        "SOURCE FOLDER [options]",
        "make a model into MLX's format",
        CONVERT,
        "owner/name ./my-model",
    )
    _places(it)
    it.add_argument(
        "--dtype",
        choices=("float16", "bfloat16", "float32"),
        help="precision of the weights; default: as they are",
    )


def _bits() -> str:
    return "bits of a weight: 2, 3, 4, 5, 6 or 8 (default: 4, for a draft model 8)"


def _places(parser: Any) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a folder or a Hugging Face id")
    parser.add_argument("destination", metavar="FOLDER", help="the folder to make")
    parser.add_argument(
        "--trust-remote-code",
        dest="run_code",
        action="store_true",
        help="let the model's folder run Python code that it brings",
    )
