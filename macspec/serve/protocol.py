"""OpenAI's requests: what of them is known, and the errors that answer the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..choices import EFFORTS, Think
from ..worker import Failed, ReplyRequest, SharedReply

ALIAS = "macspec"
"""A name for the loaded model that never changes."""

MOST_STOPS = 16
MOST_TOP_LOGPROBS = 20

SAMPLING = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "seed": int,
}
"""Fields of a request that are fields of ``Sampling``."""

TUNING = {"method": str, "depth": (int, str), "rule": str}
"""Of our own key."""

ANY_OBJECT = '{"type": "object"}'
"""The schema of JSON mode."""

LEGACY = {"suffix": "", "echo": False, "best_of": 1}
UNKNOWN: Mapping[str, Any] = {"n": 1, "functions": [], "audio": None, "modalities": ["text"]}
"""What is not possible here, unless it has this value."""


class RequestError(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        message: what is wrong and what to do, in one line.
        param: the field.
        code: OpenAI's word for it, or ours.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {
                "message": self.message,
                "type": {401: "authentication_error", 429: "rate_limit_error"}.get(
                    self.status, kind
                ),
                "param": self.param,
                "code": self.code,
            }
        }


def engine_error(failed: Failed) -> RequestError:
    """What a failed call is to a client."""
    if failed.kind == "refused":
        too_long = failed.error == "ContextOverflowError"
        code = "context_length_exceeded" if too_long else None
        return RequestError(400, failed.message, code=code)
    status = 503 if failed.kind in ("crashed", "stopped") else 500
    return RequestError(status, failed.message, code=f"engine_{failed.kind}")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What applies where a request does not say; sampling and speculation are the engine's."""

    max_tokens: int | None = None
    think: Think = None


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request."""

    reply: SharedReply
    chat: bool
    """Whether it is of a chat, not a text to be continued."""
    stream: bool
    usage: bool
    """Whether a stream ends with its usage."""


class Fields:
    """The fields of a JSON object; null counts as absent."""

    def __init__(self, value: Any, what: str = "") -> None:
        if not isinstance(value, dict):
            raise RequestError(400, f"{what or 'the request'} must be a JSON object", what or None)
        self._values: dict[str, Any] = value
        self._what = f"{what}." if what else ""

    def given(self, name: str, default: Any) -> Any:
        """The value of a field, whatever it is."""
        value = self._values.get(name)
        return default if value is None else value

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """The value of a field; of a number, a whole one is a float too."""
        value = self._values.get(name)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        fits = isinstance(value, kinds) or (float in kinds and isinstance(value, int))
        if not fits or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(WORDS[it] for it in kinds)
            raise self.wrong(name, f"must be {names}")
        return value

    def needed(self, name: str, kind: Any) -> Any:
        if self._values.get(name) is None:
            raise self.wrong(name, "is missing")
        return self.get(name, kind)

    def wrong(self, name: str, why: str) -> RequestError:
        return RequestError(400, f"{self._what}{name} {why}", f"{self._what}{name}")


WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def parsed(raw: bytes) -> Fields:
    """The body of a request."""
    try:
        return Fields(json.loads(raw, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the request is not valid JSON: {why}") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def chat_request(fields: Fields, defaults: Defaults) -> Request:
    """A request for ``/v1/chat/completions``."""
    _refuse(fields, UNKNOWN)
    messages = fields.needed("messages", list)
    if not messages:
        raise fields.wrong("messages", "is empty")
    logprobs = None
    if fields.get("logprobs", bool, False):
        logprobs = fields.get("top_logprobs", int, 0)
    elif fields.get("top_logprobs", int, 0):
        raise fields.wrong("top_logprobs", "needs logprobs")
    tools, schema = _tools(fields), _schema(fields)
    if tools and schema:
        raise fields.wrong("response_format", "is not possible with tools: leave one of them out")
    given = fields.get("max_completion_tokens", int, fields.get("max_tokens", int))
    request = ReplyRequest(
        tuple(_message(it, f"messages[{at}]") for at, it in enumerate(messages)),
        max_tokens=defaults.max_tokens if given is None else given,
        stop=_stop(fields),
        think=_think(fields, False if schema else defaults.think),
        on_overflow="refuse",
    )
    return _request(fields, request, logprobs, _prediction(fields), tools, schema)


def completion_request(fields: Fields, defaults: Defaults) -> Request:
    """A request for ``/v1/completions``: a text that is continued as it is."""
    _refuse(fields, {**UNKNOWN, **LEGACY})
    prompt = fields.needed("prompt", (str, list))
    if isinstance(prompt, list):
        if len(prompt) != 1 or not isinstance(prompt[0], str):
            raise fields.wrong("prompt", "must be one text; send a request for each of several")
        prompt = prompt[0]
    given = fields.get("max_tokens", int)
    request = ReplyRequest(
        prompt,
        max_tokens=defaults.max_tokens if given is None else given,
        stop=_stop(fields),
        raw=True,
        on_overflow="refuse",
    )
    logprobs = fields.get("logprobs", int)
    return _request(fields, request, logprobs, _prediction(fields), "", _schema(fields))


def _request(
    fields: Fields,
    reply: ReplyRequest,
    logprobs: int | None,
    prediction: str,
    tools: str,
    schema: str,
) -> Request:
    if reply.max_tokens is not None and reply.max_tokens < 1:
        raise fields.wrong("max_tokens", "must be at least 1")
    if logprobs is not None and not 0 <= logprobs <= MOST_TOP_LOGPROBS:
        raise fields.wrong("top_logprobs", f"must be between 0 and {MOST_TOP_LOGPROBS}")
    options = Fields(fields.get("stream_options", dict, {}), "stream_options")
    return Request(
        SharedReply(reply, _changes(fields), prediction, logprobs, tools, schema),
        chat=not reply.raw,
        stream=fields.get("stream", bool, False),
        usage=options.get("include_usage", bool, False),
    )


def _refuse(fields: Fields, possible: Mapping[str, Any]) -> None:
    for name, only in possible.items():
        if fields.given(name, only) != only:
            raise fields.wrong(name, "is not possible here: leave it out")


def _schema(fields: Fields) -> str:
    """The JSON schema that the reply must have, as JSON; empty: none."""
    form = Fields(fields.get("response_format", dict, {"type": "text"}), "response_format")
    match form.needed("type", str):
        case "text":
            return ""
        case "json_object":
            return ANY_OBJECT
        case "json_schema":
            what = "response_format.json_schema"
            schema = Fields(form.needed("json_schema", dict), what)
            return json.dumps(schema.needed("schema", dict))
    raise form.wrong("type", "must be text, json_object or json_schema")


def _changes(fields: Fields) -> dict[str, Any]:
    """Sampling and speculation of this reply; a seed takes the rule that repeats its text."""
    sampling = {name: fields.get(name, kind) for name, kind in SAMPLING.items()}
    sampling = {name: value for name, value in sampling.items() if value is not None}
    bias = fields.get("logit_bias", dict, {})
    try:
        if bias:
            sampling["logit_bias"] = [(int(token), float(it)) for token, it in bias.items()]
    except (TypeError, ValueError, OverflowError):
        raise fields.wrong("logit_bias", "must have numbers for ids of tokens") from None
    own = Fields(fields.get("macspec", dict, {}), "macspec")
    changes = {name: own.get(name, kind) for name, kind in TUNING.items()}
    changes = {name: value for name, value in changes.items() if value is not None}
    if "seed" in sampling:
        changes.setdefault("rule", "keyed")
    return {**changes, "sampling": sampling}


def _stop(fields: Fields) -> tuple[str, ...]:
    stop = fields.get("stop", (str, list), [])
    stops = [stop] if isinstance(stop, str) else stop
    if not all(isinstance(it, str) and it for it in stops) or len(stops) > MOST_STOPS:
        raise fields.wrong("stop", f"must be up to {MOST_STOPS} texts, none of them empty")
    return tuple(stops)


def _think(fields: Fields, default: Think) -> Think:
    effort = fields.get("reasoning_effort", str)
    if effort is not None:
        if effort not in ("none", *EFFORTS):
            choices = ", ".join(EFFORTS)
            raise fields.wrong("reasoning_effort", f"must be none or one of {choices}")
        return False if effort == "none" else effort
    template = Fields(fields.get("chat_template_kwargs", dict, {}), "chat_template_kwargs")
    think: Think = template.get("enable_thinking", bool, default)
    return think


def _prediction(fields: Fields) -> str:
    prediction = fields.get("prediction", dict)
    if prediction is None:
        return ""
    return _text(Fields(prediction, "prediction"))


def _tools(fields: Fields) -> str:
    """The tools as JSON; empty: none are offered."""
    choice = fields.get("tool_choice", (str, dict), "auto")
    if choice not in ("auto", "none"):
        raise fields.wrong("tool_choice", "must be auto or none: no call can be enforced")
    tools = fields.get("tools", list, [])
    for at, tool in enumerate(tools):
        it = Fields(tool, f"tools[{at}]")
        if it.needed("type", str) != "function":
            raise it.wrong("type", "must be function")
        Fields(it.needed("function", dict), f"tools[{at}].function").needed("name", str)
    return json.dumps(tools) if tools and choice == "auto" else ""


def _message(value: Any, what: str) -> dict[str, str]:
    """A message as the engine takes it."""
    it = Fields(value, what)
    role = it.needed("role", str)
    role = "system" if role == "developer" else role
    message = {"role": role, "content": _text(it)}
    if role == "assistant":
        if (reasoning := it.get("reasoning_content", str)) is not None:
            message["reasoning"] = reasoning
        if calls := it.get("tool_calls", list, []):
            message["tool_calls"] = json.dumps([_call(call, what) for call in calls])
    if role == "tool":
        message["tool_call_id"] = it.get("tool_call_id", str, "")
        if (name := it.get("name", str)) is not None:
            message["name"] = name
    return message


def _call(value: Any, what: str) -> dict[str, Any]:
    """A call that the model made; templates want its arguments as an object."""
    it = Fields(value, f"{what}.tool_calls")
    function = Fields(it.needed("function", dict), f"{what}.tool_calls.function")
    arguments = function.get("arguments", (str, dict), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise function.wrong("arguments", "must be JSON") from None
    name = function.needed("name", str)
    return {
        "id": it.get("id", str, ""),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _text(fields: Fields) -> str:
    """The content of a message, whose parts must be texts."""
    content = fields.get("content", (str, list), "")
    if isinstance(content, str):
        return content
    return "".join(_parts(fields, content))


def _parts(fields: Fields, parts: Sequence[Any]) -> list[str]:
    found = [Fields(it, "content") for it in parts]
    if any(it.get("type", str) != "text" for it in found):
        raise fields.wrong("content", "must be text: images and sounds are not possible here")
    return [it.needed("text", str) for it in found]
