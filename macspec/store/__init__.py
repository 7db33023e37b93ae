"""Conversations on disk."""

from .oneshots import add_one_shot, one_shots
from .records import (
    ASSISTANT,
    COMPLETE,
    CUT_OFF,
    OPEN,
    RAW,
    STOPPED,
    USER,
    Chat,
    GenerationMetadata,
    Hit,
    Message,
    last_generated,
    model_name,
    request_messages,
    spoken,
    stored_model,
    title_of,
)
from .store import Store, store_path
from .streaming import OpenReply
