"""``macspec serve``: its options, and whether what it needs is installed."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from ..errors import BadOptionError
from .options import Parser, add_decoding, add_flag, add_setting, whole

PORT = 8377

KEY = "MACSPEC_API_KEY"

DESCRIPTION = """\
Serve a pair with OpenAI's protocol (chat and text completions, models) to
editors and scripts on this machine. What the options say of sampling and
speculation applies where a request does not say. Ctrl-C ends it.
"""

EXAMPLE = """\
example:
  macspec serve
  macspec serve --target ./my-model --draft ./my-small-model --panel
"""


def add_options(it: Parser) -> None:
    it.usage = "macspec serve [options]"
    it.description, it.epilog = DESCRIPTION, EXAMPLE
    group = it.add_argument_group("server")
    group.add_argument(
        "--port", metavar="N", type=whole(0, 65535), default=PORT, help=f"port (default: {PORT})"
    )
    group.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen at (default: 127.0.0.1, this machine only); any other needs a key",
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"key that requests must name (default: {KEY} of the environment, which other "
        "programs cannot read, or none)",
    )
    group.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name of this machine that requests may use; may be given several times",
    )
    group.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="a web page that may ask, like https://example.org; may be given several times",
    )
    group.add_argument(
        "--queue",
        metavar="N",
        type=whole(1),
        default=64,
        help="most requests that are answered or wait; others get status 429 (default: 64)",
    )
    add_flag(group, "--panel", "show the panel of the app, live")
    add_setting(group, "reply.think")
    add_setting(group, "reply.max_tokens")
    add_decoding(it)


def serve(options: argparse.Namespace) -> int:
    """Serve until asked to leave; returns the exit status."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise BadOptionError(
            f"macspec serve needs {' and '.join(missing)}: pip install 'macspec[serve]'"
        )
    from .serving import serve

    return serve(options)
