"""The reply that streams."""

from __future__ import annotations

from dataclasses import replace

from screentext import seen, until
from textual.pilot import Pilot
from transcripthost import TranscriptHost, reply, talk, user

from macspec.app.chat.turns import TextPiece, Turn
from macspec.text import Span

OPEN = Turn(50, "assistant", "", state="open", model="big")


def piece(text: str, who: str | None = None, *, reasoning: bool = False) -> TextPiece:
    return TextPiece(text, [(len(text), who)], reasoning)


async def begun(app: TranscriptHost, pilot: Pilot[None], turns: int = 4) -> None:
    await app.transcript.show(talk(turns))
    await app.transcript.begin(user(49, "go on"))
    await app.transcript.begin(OPEN)
    await pilot.pause()


async def test_text_appears_as_markdown_and_is_followed() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await begun(app, pilot)
        for n in range(30):
            app.transcript.feed(piece(f"- item **{n}**\n"))
        await until(pilot, lambda: "• item 29" in seen(app))
        app.transcript.feed(piece("\nThe end"))
        await until(pilot, lambda: seen(app).rstrip().endswith("The end"))


async def test_what_waits_is_shown_at_the_end() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await begun(app, pilot)
        app.transcript.feed(piece("one "))
        app.transcript.feed(piece("two"))
        await app.transcript.end(reply(50, "one two"))
        await until(pilot, lambda: "one two" in seen(app) and "128 tokens" in seen(app))


async def test_the_final_text_counts() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await begun(app, pilot)
        app.transcript.feed(piece("half of a wo"))
        await app.transcript.end(reply(50, "half of it", state="stopped"))
        await until(pilot, lambda: "half of it" in seen(app) and "■ Stopped" in seen(app))
        assert "half of a wo" not in seen(app)


async def test_the_place_stays_where_the_user_scrolled_to() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await begun(app, pilot, turns=20)
        transcript = app.transcript
        transcript.focus()
        await pilot.press("pageup")
        before = app.rows()
        end = len(transcript.list)
        for n in range(5):
            transcript.feed(piece(f"paragraph {n} of the reply\n\n"))
            await until(pilot, lambda end=end, n=n: len(transcript.list) >= end + n)
        text = "".join(f"paragraph {n} of the reply\n\n" for n in range(5))
        await transcript.end(reply(50, text))
        await pilot.pause()
        assert app.rows() == before
        await pilot.press("end")
        await until(pilot, lambda: "paragraph 4 of the reply" in seen(app))


async def test_end_follows_again_and_so_does_scrolling_down() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await begun(app, pilot)
        app.transcript.focus()
        for back in (["end"], ["pagedown"] * 9):
            await pilot.press("pageup")
            assert not app.transcript.following
            await pilot.press(*back)
            assert app.transcript.following
        app.transcript.feed(piece("line\n\n" * 30 + "last"))
        await until(pilot, lambda: "  last" in app.rows())


async def test_reasoning_folds_when_the_answer_starts() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await begun(app, pilot, turns=2)
        app.transcript.feed(piece("let me think", reasoning=True))
        await until(pilot, lambda: "let me think" in seen(app) and "▾ reasoning" in seen(app))
        app.transcript.feed(piece("so it is"))
        await until(pilot, lambda: "so it is" in seen(app) and "▸ reasoning, 3 words" in seen(app))
        assert "let me think" not in seen(app)
        app.transcript.reasoning_open = True
        await until(pilot, lambda: "let me think" in seen(app))
        app.transcript.reasoning_open = False
        await until(pilot, lambda: "let me think" not in seen(app))
        fold = next(y for y, line in enumerate(seen(app).splitlines()) if "▸" in line)
        await pilot.click(app.transcript.__class__, offset=(4, fold))
        await until(pilot, lambda: "let me think" in seen(app))


async def test_reasoning_stays_open_under_the_eyes_of_a_reader() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 12)) as pilot:
        await begun(app, pilot)
        thoughts = "\n\n".join(f"thought {n}" for n in range(20))
        app.transcript.feed(piece(thoughts, reasoning=True))
        await until(pilot, lambda: "thought 19" in seen(app))
        app.transcript.focus()
        await pilot.press("pageup")
        before = app.rows()
        app.transcript.feed(piece("answer"))
        await until(pilot, lambda: app.transcript.list.entries[-1].answer.text == "answer")
        assert app.rows() == before


async def test_reasoning_without_an_answer_stays_open() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await app.transcript.show([user(1), reply(2, " ", reasoning="only thoughts")])
        await until(pilot, lambda: "only thoughts" in seen(app))


async def test_tint_in_mid_stream() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(70, 20)) as pilot:
        await begun(app, pilot, turns=2)
        app.transcript.feed(piece("**own** "))
        app.transcript.tint = True
        app.transcript.feed(piece("drafted text", "draft"))
        app.transcript.feed(piece(" looked up", "ngram"))
        await until(pilot, lambda: "**own** drafted text looked up" in seen(app))
        assert "source text · draft model 40% · n-gram 33% · the target's own 27%" in seen(app)

        def signs(word: str) -> tuple[bool, bool]:
            for y in range(20):
                for segment in app.transcript.render_line(y):
                    if word == segment.text.strip() and segment.style:
                        style = segment.style
                        return bool(style.underline), bool(style.bold)
            raise AssertionError(word)

        assert signs("**own**") == (False, False)
        assert signs("drafted text") == (True, False)
        assert signs("looked up") == (True, True)
        spans: list[Span] = [(8, None), (12, "draft"), (10, "ngram")]
        await app.transcript.end(reply(50, "**own** drafted text looked up", spans=spans))
        await until(pilot, lambda: "128 tokens" in seen(app))
        assert signs("looked up") == (True, True)
        app.transcript.tint = False
        await until(pilot, lambda: "own drafted text looked up" in seen(app))


async def test_the_final_rows_are_those_of_a_turn_that_is_opened() -> None:
    text = "# One\n\n1. a\n2. b\n\n```py\nx\n```\n\n| a | b |\n|---|---|\n| c | d |\n"
    app, other = TranscriptHost(), TranscriptHost()
    async with app.run_test(size=(60, 30)) as pilot:
        await begun(app, pilot, turns=2)
        for character in text:
            app.transcript.feed(piece(character))
            if character == "\n":
                await pilot.pause()
        await app.transcript.end(reply(50, text, spans=[(len(text), None)]))
        await pilot.pause()
        shown = seen(app)
    async with other.run_test(size=(60, 30)) as pilot:
        turn = reply(50, text, spans=[(len(text), None)])
        await other.transcript.show([*talk(2), user(49, "go on"), turn])
        await pilot.pause()
        assert seen(other) == shown


async def test_facts_in_mid_reply_leave_its_text_alone() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await begun(app, pilot, turns=2)
        app.transcript.feed(piece("first "))
        await until(pilot, lambda: "first" in seen(app))
        app.transcript.update_turn(replace(OPEN, text="first second ", siblings=2, sibling=2))
        app.transcript.feed(piece("second"))
        await until(pilot, lambda: "first second" in seen(app) and "‹ 2/2 ›" in seen(app))
        assert seen(app).count("second") == 1


async def test_a_reply_is_resumed() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await app.transcript.show([user(1)])
        await app.transcript.begin(replace(OPEN, text="It was "))
        app.transcript.feed(piece("cut off"))
        await until(pilot, lambda: "It was cut off" in seen(app))


async def test_a_late_piece_finds_no_reply() -> None:
    app = TranscriptHost()
    async with app.run_test(size=(60, 20)) as pilot:
        await begun(app, pilot)
        app.transcript.feed(piece("lost"))
        await app.transcript.show([user(1)])
        app.transcript.feed(piece("lost"))
        await pilot.pause(0.2)
        assert "lost" not in seen(app)
