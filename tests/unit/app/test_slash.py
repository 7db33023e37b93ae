"""Slash commands: which lines are some, and how a line could go on."""

from __future__ import annotations

import pytest

from macspec.app.actions import ACTIONS, Situation
from macspec.app.slash import continuations, parse
from macspec.errors import BadOptionError


class Offers:
    """A few chats and models."""

    situation = Situation(turns=True, replied=True, chat=True)

    def themes(self) -> list[tuple[str, str]]:
        return [("nord", "dark"), ("textual-light", "light")]

    def models(self) -> list[tuple[str, str]]:
        return [("built-in", "small")]

    def chats(self) -> list[tuple[str, str]]:
        return [("7", "Blue sky"), ("12", "A table for two")]


def command(text: str) -> tuple[str, str]:
    parsed = parse(text)
    assert parsed is not None
    return parsed[0].id, parsed[1]


def test_every_action_can_be_asked_for() -> None:
    for action in ACTIONS:
        assert command(f"/{action.slash}") == (action.id, "")


@pytest.mark.parametrize(
    ("text", "id", "argument"),
    [
        ("/depth 4", "depth", "4"),
        ("/DEPTH  auto \n", "depth", "auto"),
        ("/exit", "leave", ""),
        ("/system Be brief.\nBe kind.", "system", "Be brief.\nBe kind."),
        ("/models owner/large owner/small", "models", "owner/large owner/small"),
    ],
)
def test_a_command(text: str, id: str, argument: str) -> None:
    assert command(text) == (id, argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        " /depth 4",
        "/etc/hosts is what?",
        " /",
        "/4",
        "a /depth 4",
        "//depth",
        "/a.txt",
    ],
)
def test_what_is_for_the_model(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("/dept 4", "unknown command /dept; did you mean /depth?"),
        ("/xyzzy", "unknown command /xyzzy; /help lists them"),
        ("/tint on", "/tint takes no argument"),
        ("/", "write a command after the slash; /help lists them"),
        ("/undo2", "unknown command /undo2; did you mean /undo?"),
    ],
)
def test_a_mistake_is_told_in_a_line(text: str, line: str) -> None:
    with pytest.raises(BadOptionError) as raised:
        parse(text)
    assert line in str(raised.value)


def texts(line: str) -> list[str]:
    return [it.text for it in continuations(line, Offers())]


def test_names_come_first_then_arguments() -> None:
    assert set(texts("/de")) == {
        "/depth ",
        "/deeper",
        "/delete",
    }
    assert texts("/method n") == ["/method ngram"]
    assert texts("/theme ") == ["/theme nord", "/theme textual-light"]
    assert len(texts("/")) == len(ACTIONS)


def test_what_is_possible_now_comes_first() -> None:
    assert texts("/")[0] == "/regenerate"
    assert texts("/s")[-1] == "/stop"


def test_enter_carries_out_what_is_whole() -> None:
    found = [it for line in ("/exp", "/theme ") for it in continuations(line, Offers())]
    wholes = {it.text: it.whole for it in found}
    assert wholes == {"/export ": True, "/theme nord": True, "/theme textual-light": True}
    more = [it for it in continuations("/sampling top", Offers()) if not it.whole]
    assert [it.text for it in more] == ["/sampling top_p ", "/sampling top_k "]
    assert not any(it.whole for it in continuations("/", Offers()))


def test_an_alias_leads_to_the_command() -> None:
    assert texts("/exi") == ["/quit"]
    assert texts("/retr") == ["/regenerate"]


def test_a_choice_is_found_by_what_it_stands_for() -> None:
    assert texts("/chats sky") == ["/chats 7"]
    assert texts("/theme light") == ["/theme textual-light"]


@pytest.mark.parametrize("line", ["", "hello", "/depth 4\n", "/depth 4", "/rename x", "/nothing "])
def test_nothing_to_go_on_with(line: str) -> None:
    assert texts(line) == []
