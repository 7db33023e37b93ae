"""The engine in a child process.

A front end asks a ``ProcessEngine`` and gets a ``Call``, the stream of events that answers it. Only
``macspec.worker.engine``, which runs in the child, imports MLX.
"""

from .client import Call, EngineClient
from .log import Log
from .messages import (
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    PromptTokens,
    Queued,
    ReplyRequest,
    ScoreMargin,
    SharedReply,
    Status,
    ToolCall,
    Tuned,
    Tuning,
)
from .process import ProcessEngine
