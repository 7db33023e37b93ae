"""Finished turns: what is shown, where one is, and what can be chosen and copied."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hostile import TEXTS, harms
from screentext import seen, until
from textual.geometry import Offset, Region
from textual.selection import SELECT_ALL, Selection
from transcripthost import TranscriptHost, reply, talk, user

from macspec.app.transcript.transcript import Transcript


def drawn(transcript: Transcript) -> int:
    """Parts that were drawn."""
    return sum(part.rows is not None for entry in transcript.list.entries for part in entry.parts)


async def test_turns_are_shown_with_their_numbers() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(100, 20)) as pilot:
        turn = reply(2, "It is **so**.", draft="someone/small", sibling=2, siblings=3)
        await app.transcript.show([user(1, "Is it?"), turn])
        await pilot.pause()
        assert seen(app).splitlines()[:6] == [
            "▎ You",
            "▎ Is it?",
            "",
            "  big · draft small · ‹ 2/3 ›",
            "  It is so.",
            "  128 tokens · 41.3 tok/s · 72% accepted · first token 0.42 s · 0.31 J/token "
            "· 3.10 tokens/pass",
        ]


async def test_states_have_marks() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(90, 40)) as pilot:
        await app.transcript.show(
            [
                user(1, dropped=True),
                reply(2, dropped=True, stats=None),
                user(3),
                reply(4, state="stopped", stats=None),
                reply(5, state="cut off", stats=None),
                reply(6, reason="length"),
                reply(7, reason="context", stats=None),
            ]
        )
        app.transcript.note("the model is now\nanother one \x1b[31m")
        await pilot.pause()
        shown = seen(app)
    assert "You · out of context" in shown
    assert "─ context full: the model no longer sees what is above ─" in shown
    assert shown.index("answer 2") < shown.index("no longer sees") < shown.index("question 3")
    for mark in (
        "■ Stopped",
        "✗ Interrupted",
        "■ Stopped: length limit · 128 tokens",
        "■ Stopped: context full",
    ):
        assert mark in shown
    assert "the model is now another one ␛[31m" in shown


async def test_the_numbers_of_a_reply_are_one_row_of_what_is_known() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        turn = reply(1)
        stats = replace(turn.stats, tokens=1, joules_per_token=None, acceptance=None)
        await app.transcript.show([turn, replace(reply(2), stats=stats)])
        await pilot.pause()
        lines = [line.strip() for line in seen(app).splitlines()]
    assert "128 tokens · 41.3 tok/s · 72% accepted" in lines
    assert "1 token · 41.3 tok/s · first token 0.42 s" in lines


async def test_a_long_conversation_is_drawn_where_one_looks() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(80, 24)) as pilot:
        transcript = app.transcript
        await transcript.show(talk(400))
        assert drawn(transcript) < 100
        await until(pilot, lambda: "answer 400" in seen(app))
        await pilot.press("tab")
        transcript.focus()
        await pilot.press("home")
        await until(pilot, lambda: "question 1\n" in seen(app))
        assert drawn(transcript) < 200
        await pilot.press("end")
        await until(pilot, lambda: "answer 400" in seen(app))


async def test_scrolling_up_meets_every_row_once() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(40, 12)) as pilot:
        transcript = app.transcript
        texts = [f"word{n} " * (27 * n % 40 + 1) + f"\n\n- end{n}" for n in range(9)]
        await transcript.show([reply(n, text, stats=None) for n, text in enumerate(texts)])
        await pilot.pause()
        met: list[str] = []
        while transcript.scroll_offset.y > 0:
            met.insert(0, app.rows()[0])
            transcript.scroll_relative(y=-1, animate=False)
            await pilot.pause()
        ends = [line.strip(" •") for line in met if "end" in line]
        assert ends == [f"end{n}" for n in range(9)][: len(ends)]
        assert len(ends) >= 7


async def test_another_width_keeps_the_place() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        await transcript.show([reply(n, f"here{n} " * 300) for n in range(1, 30)])
        await pilot.pause()
        transcript.scroll_to(y=len(transcript.list) // 2)
        await pilot.pause()
        here = seen(app).split()[0]
        await pilot.resize_terminal(50, 20)
        await until(pilot, lambda: transcript.size.width <= 50 and here in seen(app))
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: here in seen(app))
        assert not transcript.following


async def test_at_the_end_another_size_stays_at_the_end() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(80, 20)) as pilot:
        await app.transcript.show(talk(20))
        await until(pilot, lambda: "answer 20" in seen(app))
        await pilot.resize_terminal(40, 12)
        await until(pilot, lambda: "128 tokens" in seen(app))
        assert app.transcript.following


async def test_a_width_that_comes_back_is_not_drawn_again() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(80, 20)) as pilot:
        transcript = app.transcript
        await transcript.show(talk(6))
        await until(pilot, lambda: "answer 6" in seen(app))
        parts = [entry.parts for entry in transcript.list.entries]
        await pilot.resize_terminal(50, 20)
        await until(pilot, lambda: transcript.size.width <= 50)
        transcript.update_turn(reply(6, "answer 6, and more"))
        await pilot.resize_terminal(80, 20)
        await until(pilot, lambda: transcript.size.width > 50 and "and more" in seen(app))
        again = [entry.parts for entry in transcript.list.entries]
        drawn_before = [(one, two) for one, two in zip(parts[:5], again[:5], strict=True) if one]
        assert drawn_before
        assert all(one is two for one, two in drawn_before)
        assert again[5] is not parts[5]


async def test_another_theme_draws_anew() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show([reply(1, "# Head")])
        await pilot.pause()

        def colour() -> object:
            strip = app.transcript.render_line(1)
            return [segment.style.color for segment in strip if "Head" in segment.text]

        before = colour()
        app.theme = "textual-light"
        await until(pilot, lambda: colour() != before)
        assert app.transcript.list.look.styles.base.bgcolor == app.transcript.rich_style.bgcolor


async def test_turns_are_chosen_with_the_arrows() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show(talk(6, lines=1))
        app.transcript.focus()
        await pilot.press("up", "up")
        assert app.chosen == [6, 5]
        assert "┃ question 5" in seen(app)
        await pilot.press("up", "up", "up", "up")
        assert app.chosen[-1] == 1
        await pilot.press("up")
        assert app.transcript.chosen == 1
        await until(pilot, lambda: "┃ question 1" in seen(app))
        await pilot.press(*["down"] * 5)
        assert app.chosen[-1] == 6
        await pilot.press("down")
        assert app.chosen[-1] is None
        assert app.transcript.following


async def test_a_click_on_its_first_line_chooses_a_turn() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show([user(1), reply(2)])
        await pilot.pause()
        await pilot.click(Transcript, offset=(3, 3))
        await until(pilot, lambda: app.chosen == [2])
        await pilot.click(Transcript, offset=(3, 3))
        await until(pilot, lambda: app.chosen == [2, None])
        await pilot.click(Transcript, offset=(3, 1))
        await pilot.pause()
        assert app.chosen == [2, None]


async def test_a_long_turn_is_read_before_the_next_is_chosen() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show([user(1), reply(2, "\n\n".join(f"line {n}" for n in range(30)))])
        app.transcript.focus()
        await pilot.press("up")
        tops = [app.transcript.scroll_offset.y]
        while app.chosen == [2]:
            await pilot.press("up")
            tops.append(app.transcript.scroll_offset.y)
        assert len(tops) > 5
        assert tops == sorted(tops, reverse=True)
        assert app.chosen == [2, 1]


async def test_a_selection_is_copied_as_it_was_written() -> None:
    app = TranscriptHost()
    text = "some words that are broken on a narrow screen\n\n```py\nx = 1\n\n    y = 2\n```"
    async with app.run_test(size=(24, 30)) as pilot:
        await app.transcript.show([reply(1, text, stats=None)])
        await pilot.pause()
        whole = app.transcript.get_selection(SELECT_ALL)
        assert whole is not None
        assert text.split("\n")[0] in whole[0]
        assert "\nx = 1\n\n    y = 2\n" in whole[0]
        lines = seen(app).splitlines()
        first = Offset(2 + 5, 1)
        last = Offset(lines[2].index("broken") + len("broken"), 2)
        part = app.transcript.get_selection(Selection(first, last))
        assert part is not None
        assert part[0] == "words that are broken"


async def test_dragging_selects_and_leaves_the_focus() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(40, 12)) as pilot:
        await app.transcript.show([user(1, "take these words"), reply(2)])
        await pilot.pause()
        app.set_focus(None)
        await pilot.mouse_down(Transcript, offset=(7, 1))
        await pilot.hover(Transcript, offset=(11, 1))
        await pilot.mouse_up(Transcript, offset=(11, 1))
        await until(pilot, lambda: app.screen.get_selected_text())
        assert app.screen.get_selected_text() == "these"
        assert app.focused is None


async def test_clicks_select_a_word_a_line_and_a_turn() -> None:
    app = TranscriptHost()
    text = "first words-and more of them than a row has room for\n\nsecond"
    async with app.run_test(size=(24, 14)) as pilot:
        await app.transcript.show([user(1), reply(2, text, stats=None)])
        await pilot.pause()

        async def selected(times: int) -> str | None:
            await pilot.click(Transcript, offset=(10, 4), times=times)
            await pilot.pause()
            return app.screen.get_selected_text()

        assert await selected(2) == "words"
        assert await selected(3) == text.split("\n")[0]
        assert await selected(4) == text
        assert not await selected(1)


async def test_a_click_on_its_version_asks_for_the_one_beside_it() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show([user(1), reply(2, sibling=2, siblings=3)])
        await pilot.pause()
        row = next(y for y, line in enumerate(app.rows()) if "‹ 2/3 ›" in line)
        at = app.rows()[row].index("‹")
        for x, by in ((at, -1), (at + 6, 1)):
            await pilot.click(Transcript, offset=(x, row))
            await until(pilot, lambda by=by: app.versions[-1:] == [(2, by)])
        assert app.chosen == []


async def test_words_are_marked_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    app = TranscriptHost()
    async with app.run_test(size=(40, 12)) as pilot:
        long = "\n\n".join(f"line {number}" for number in range(40))
        await app.transcript.show([reply(1, f"{long}\n\nthe Heron flies\n\n{long}"), user(2)])
        await pilot.pause()
        app.transcript.find(1, re.compile("heron", re.IGNORECASE))
        await until(pilot, lambda: "Heron" in seen(app))
        y = next(y for y, line in enumerate(app.rows()) if "Heron" in line)
        marked = {
            segment.text: segment.style
            for segment in app.transcript.render_line(y)
            if segment.text.strip()
        }
        assert marked["Heron"] != marked["the "]
        for width in (9, 0):
            with monkeypatch.context() as shrunk:
                shrunk.setattr(Transcript, "scrollable_content_region", Region(0, 0, width, 12))
                assert app.rows()[y] == "┃ the Heron flies"[:width]
        app.transcript.choose(None)
        assert "Heron" not in [segment.text for segment in app.transcript.render_line(y)]


async def test_facts_about_a_turn_change() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await app.transcript.show([user(1), reply(2)])
        app.transcript.update_turn(reply(2, siblings=2, sibling=2))
        app.transcript.update_turn(user(1, dropped=True))
        await until(pilot, lambda: "‹ 2/2 ›" in seen(app) and "out of context" in seen(app))
        app.transcript.update_turn(reply(77))
        assert "answer 77" not in seen(app)


@pytest.mark.parametrize("name", TEXTS)
async def test_hostile_turns_leave_the_screen_whole(name: str) -> None:
    text = TEXTS[name]
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        short = text[:2_000]
        await app.transcript.show(
            [user(1, text), reply(2, text, reasoning=short, model=short[:99])]
        )
        app.transcript.note(short)
        for tint in (False, True):
            app.transcript.tint = tint
            await pilot.pause()
            assert not harms(seen(app))
            app.transcript.scroll_home(animate=False)
            await pilot.pause()
            assert not harms(seen(app))
