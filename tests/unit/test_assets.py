"""What ships: the built-in pair and the prompts."""

from __future__ import annotations

from dataclasses import replace

from replies import finish

from macspec import Sampling, Session, load_pair
from macspec.assets import pocket as built_in
from macspec.assets import prompts
from macspec.models import Pair, Template

GREEDY = Sampling(temperature=0)

LEAST = 2.5
"""Tokens per pass on shipped prompts at depth 4; the head makes 3.3."""


def test_the_built_in_pair_is_whole() -> None:
    folders = built_in()
    for folder in folders:
        names = {file.name for file in folder.iterdir()}
        assert {"config.json", "model.safetensors"} <= names
        assert ("tokenizer.json" in names) == (folder != folders.head)
    notice = (folders.target.parent / "LICENSE").read_text(encoding="utf-8")
    assert "CC-BY-SA-4.0" in notice


def test_the_built_in_head_drafts_what_the_target_says(pocket: Pair) -> None:
    head = load_pair().head
    plain = Session(pocket, method="off")
    session = Session(replace(pocket, head=head), method="eagle", depth=4)
    tokens = passes = 0
    for chat in prompts()[40::5]:
        wanted = finish(plain, chat, GREEDY, max_tokens=24)
        found = finish(session, chat, GREEDY, max_tokens=24)
        assert found.token_ids == wanted.token_ids
        tokens, passes = tokens + found.stats.tokens, passes + found.stats.passes
    assert tokens > LEAST * passes


def test_every_prompt_leaves_room_for_a_reply() -> None:
    pair = load_pair()
    template = Template(pair)
    conversations = prompts()
    assert len(conversations) >= 40
    assert len({str(conversation) for conversation in conversations}) == len(conversations)
    for conversation in conversations:
        roles = [message["role"] for message in conversation]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert len(template.tokens(conversation)) <= pair.context // 2


def test_some_prompts_have_several_turns() -> None:
    assert {len(conversation) for conversation in prompts()} == {1, 3, 5}
