"""The parser, and the options that commands share; those of settings are made from their schema."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from ..config.kinds import Kind
from ..config.kinds import whole as whole_kind
from ..config.schema import BUILT_IN, NONE, SETTINGS, Setting, section, sentence
from ..terminal import complain

if TYPE_CHECKING:
    from ..config.effective import Effective

LARGEST = 2**63 - 1
"""Of a conversation's id."""

LAST = "last"
"""The value of ``options.chat`` for ``--continue``."""


class Parser(argparse.ArgumentParser):
    """A parser that reports each mistake in one line, with exit status 2."""

    def __init__(self, **settings: Any) -> None:
        # Examples as they are written, options in a column that fits 80 characters.
        form = partial(argparse.RawDescriptionHelpFormatter, max_help_position=30)
        super().__init__(allow_abbrev=False, **{"formatter_class": form, **settings})

    def error(self, message: str) -> NoReturn:
        complain(f"{message.removeprefix('argument ')} (see {self.prog} --help)")
        self.exit(2)


class Version(argparse.Action):
    """Prints the version, which is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"macspec {version('macspec')}")
        parser.exit()


def of_kind(kind: Kind) -> Callable[[str], Any]:
    """An argument type: a value that a setting of this kind may have."""

    def parse(text: str) -> Any:
        try:
            return kind.from_text(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {kind.says}, not {text!r}") from None

    return parse


def whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """An argument type: a whole number in a range."""
    return of_kind(whole_kind(lowest, highest))


def some_text(text: str) -> str:
    """An argument type: any text but the empty one."""
    if not text:
        raise argparse.ArgumentTypeError("the text is empty")
    return text


def add_actions(parser: argparse.ArgumentParser, kind: str = "action") -> Callable[..., Any]:
    """Make a command take actions, or what ``kind`` calls them; returns what adds one.

    Its arguments: the action's name, how its usage goes on, its help, how its example goes on,
    and a description, where that says more than the help.
    """
    actions = parser.add_subparsers(title=f"{kind}s", metavar=kind.upper(), prog=parser.prog)

    def add(name: str, usage: str, about: str, example: str, description: str = "") -> Any:
        it = actions.add_parser(
            name,
            usage=f"{parser.prog} {name} {usage}".rstrip(),
            help=about,
            description=description or sentence(about),
            epilog=f"example:\n  {parser.prog} {name} {example}".rstrip() + "\n",
        )
        it.set_defaults(**{kind: name})
        return it

    return add


def add_flag(group: Any, name: str, about: str) -> None:
    """An option that takes no value."""
    group.add_argument(name, action="store_true", help=about)


def add_setting(group: Any, key: str, note: str = "") -> None:
    """The option of a setting, its help with a note added.

    Its default is None: ``fill`` gives it the setting's value.
    """
    setting = SETTINGS[key]
    flag = setting.name.replace("_", "-")
    if setting.off:
        group.add_argument(
            f"--no-{flag}", dest=setting.name, action="store_false", default=None, help=setting.off
        )
        return
    free = setting.kind.parse is str and not setting.kind.choices  # checked where it is used
    group.add_argument(
        f"--{flag}",
        metavar=setting.kind.metavar,
        type=None if free else of_kind(setting.kind),
        help=option_help(setting) + note,
    )


def option_help(setting: Setting) -> str:
    """The help of a setting's option: what it does, the choices, and the default."""
    choices = [
        f"{name} ({about}{'; default' if name == setting.default else ''})"
        for name, about in setting.kind.choices.items()
        if about
    ]
    if choices:
        return f"{setting.help}: {', '.join(choices)}"
    default = setting.unset
    if setting.default not in (None, ""):
        default = str(setting.default).removesuffix(".0")
    return f"{setting.help} (default: {default})"


def add_section(
    parser: argparse.ArgumentParser, name: str, without: Collection[str] = ()
) -> argparse._ArgumentGroup:
    group = parser.add_argument_group(name)
    for setting in section(name).values():
        if setting.key not in without:
            add_setting(group, setting.key)
    return group


def add_models(parser: argparse.ArgumentParser, *, hosts: bool = False) -> None:
    """The options of the models; ``hosts``: a target may be spread over several machines."""
    group = add_section(parser, "models", () if hosts else ("models.hosts",))
    add_flag(group, "--trust-remote-code", "run Python code that comes with a model")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """The options of the models, of speculation and of sampling."""
    add_models(parser, hosts=True)
    group = add_section(parser, "speculation")
    rule = of_kind(SETTINGS["speculation.rule"].kind)
    group.add_argument("--accept", dest="rule", type=rule, help=argparse.SUPPRESS)  # old spelling
    add_section(parser, "sampling")


def add_chat_choice(group: Any, about: str) -> Any:
    """The option --chat, alone in a group of which one may be given."""
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--chat",
        metavar="ID",
        type=whole(1, LARGEST),
        help=f"{about} this conversation; macspec history lists them",
    )
    return which


def filled_by() -> dict[str, str]:
    """Options, and the keys of the settings that fill them in."""
    sections = ("models", "speculation", "control", "sampling", "reply", "history")
    return {it.name: it.key for name in sections for it in section(name).values()}


TEMPLATED = ("system", "think")
"""Options that need the chat template, which a raw prompt does not go through."""


def fill(options: argparse.Namespace, settings: Effective | None = None) -> Effective:
    """Give every option that was not given its value from the settings, and return these.

    A target on the command line excludes the settings' draft, which belongs to another target.
    Without settings they are the user's own; errors are those of ``load``.
    """
    from ..config.effective import load

    settings = settings or load()
    left_out: Iterable[str] = TEMPLATED if getattr(options, "raw", False) else ()
    if options.target is not None:
        left_out = (*left_out, "draft")
    for name, key in filled_by().items():
        if name not in left_out and getattr(options, name, name) is None:
            setattr(options, name, settings.value(key))
    options.target = None if options.target == BUILT_IN else options.target
    options.draft = None if options.draft == NONE else options.draft
    return settings
