"""What ships: the built-in pair and the prompts."""

from __future__ import annotations

from macspec import load_pair
from macspec.assets import pocket, prompts
from macspec.models import Template


def test_the_built_in_pair_is_whole() -> None:
    for folder in pocket():
        names = {file.name for file in folder.iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    notice = (pocket()[0].parent / "LICENSE").read_text(encoding="utf-8")
    assert "CC-BY-SA-4.0" in notice


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
