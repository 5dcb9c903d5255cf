"""The values that move during a rollout: messages, tool definitions, replies, trajectory steps, `State`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from verifiers.images import as_part

Role = Literal["system", "user", "assistant", "tool"]
Info = dict[str, Any]
SamplingArgs = dict[str, Any]
MessageType = Literal["chat", "completion"]


class Attributed(dict[str, Any]):
    """A dict whose known keys also read as attributes; a known key that is absent reads as `None`."""

    __slots__ = ()
    fields: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name in self.fields:
                return None
            raise AttributeError(f"{type(self).__name__} has no field '{name}' (it has: {', '.join(self)})") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """Plain nested dicts, for code that expects pydantic's method."""
        return {k: _plain(v) for k, v in self.items() if not (exclude_none and v is None)}

    def copy(self) -> Any:
        return type(self).__new__(type(self))._fill(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Any:
        return self.copy()._fill(update or {})

    def _fill(self, items: Mapping[str, Any]) -> Any:
        dict.update(self, items)
        return self


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


class Function(Attributed):
    """The inner half of an OpenAI tool call: `name`, and `arguments` as the model's own text."""

    __slots__ = ()
    fields = frozenset({"name", "arguments"})


class ToolCall(Attributed):
    """One tool call of an assistant message.

    Stored in the OpenAI shape, `call["function"]["name"]`; `call.name` and `call.arguments` read the same place.
    """

    __slots__ = ()
    fields = frozenset({"id", "type", "function"})

    def __init__(self, id: str = "", name: str = "", arguments: str = "{}", **rest: Any) -> None:
        function = rest.pop("function", None)
        if function is None:
            function = {"name": name, "arguments": arguments}
        elif not isinstance(function, Mapping):
            function = {"name": getattr(function, "name", ""), "arguments": getattr(function, "arguments", "")}
        super().__init__(id=id, type=rest.pop("type", "function"), function=Function(function), **rest)

    @property
    def name(self) -> str:
        return self["function"].get("name") or ""

    @property
    def arguments(self) -> Any:
        """Text as the model wrote it, or whatever the server made of it; `None` when there is none."""
        return self["function"].get("arguments")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("name", "arguments"):
            self["function"][name] = value
        else:
            self[name] = value

    def __missing__(self, key: str) -> Any:
        if key in ("name", "arguments"):  # the flat spelling of 0.1.11 and later
            return getattr(self, key)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


_MESSAGE_FIELDS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "reasoning_content",
        "thinking_blocks",
        "refusal",
        "audio",
    }
)


class Message(Attributed):
    """One chat message: a dict with the OpenAI keys that also reads by attribute (`m["content"]`, `m.content`)."""

    __slots__ = ()
    fields = _MESSAGE_FIELDS


class SystemMessage(Message):
    __slots__ = ()

    def __init__(self, content: Any = "", **rest: Any) -> None:
        dict.__init__(self, {**rest, "role": "system", "content": content})


class UserMessage(Message):
    __slots__ = ()

    def __init__(self, content: Any = "", **rest: Any) -> None:
        dict.__init__(self, {**rest, "role": "user", "content": content})


class AssistantMessage(Message):
    __slots__ = ()
    # since 0.1.11 read on a reply's message; these are no keys, so that they do not go back to the server
    is_truncated = False
    finish_reason: str | None = None
    tokens: Any = None

    def __init__(self, content: Any = None, tool_calls: Iterable[Any] | None = None, **rest: Any) -> None:
        dict.__init__(self, {**rest, "role": "assistant", "content": content})
        if tool_calls:
            self["tool_calls"] = [as_tool_call(c) for c in tool_calls]


class CutMessage(AssistantMessage):
    """One that ended because its length was used up."""

    __slots__ = ()
    is_truncated = True
    finish_reason = "length"


class ToolMessage(Message):
    __slots__ = ()

    def __init__(self, content: Any = "", tool_call_id: str = "", **rest: Any) -> None:
        dict.__init__(self, {**rest, "role": "tool", "content": content, "tool_call_id": tool_call_id})


class TextMessage(Message):
    """The text of a base model's prompt or completion (`message_type="completion"`)."""

    __slots__ = ()

    def __init__(self, content: str = "", **rest: Any) -> None:
        dict.__init__(self, {**rest, "role": "text", "content": content})


Messages = list[Message]
ChatMessage = Message

_BY_ROLE: dict[str, type[Message]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "text": TextMessage,
}


def as_tool_call(call: Any) -> ToolCall:
    """A `ToolCall` from a nested or flat dict, an object of the OpenAI package, or JSON text of one."""
    if isinstance(call, ToolCall):
        return call
    if isinstance(call, str):
        import json

        call = json.loads(call)
    if not isinstance(call, Mapping):
        call = call.model_dump() if hasattr(call, "model_dump") else vars(call)
    return ToolCall(**call)


def as_message(message: Any) -> Message:
    """One message as our type. Accepts dicts, our own, and objects with `model_dump()` or attributes.

    Raises TypeError when there is no role to be found.
    """
    if isinstance(message, Message):
        content = message.get("content")
        if type(content) is list:
            parts = [as_part(part) for part in content]
            return message if parts == content else message.model_copy(update={"content": parts})
        return message
    if isinstance(message, str):
        return UserMessage(message)
    if not isinstance(message, Mapping):
        if hasattr(message, "model_dump"):
            message = message.model_dump(exclude_none=True)
        elif hasattr(message, "role"):
            message = {k: getattr(message, k) for k in _MESSAGE_FIELDS if getattr(message, k, None) is not None}
        else:
            raise TypeError(
                f"a message is a dict with 'role' and 'content', got {type(message).__name__}: {message!r:.80}"
            )
    role = message.get("role")
    if role is None:
        raise TypeError(f"a message needs a 'role', got keys {sorted(message)}")
    # Arrow gives every message of a column the same keys and fills the gaps with None
    present = {k: v for k, v in message.items() if v is not None or k == "content"}
    parts = present.get("content")
    if isinstance(parts, (list, tuple)):
        present["content"] = [as_part(part) for part in parts]
    typed = Message.__new__(_BY_ROLE.get(role, Message))._fill(present)
    calls = typed.get("tool_calls")
    if calls is not None:
        if calls:
            typed["tool_calls"] = [as_tool_call(c) for c in calls]
        else:
            del typed["tool_calls"]
    return typed


def as_messages(messages: Any) -> list[Message]:
    """A list of our messages from a list of any, or from a str (one user message)."""
    if isinstance(messages, str):
        return [UserMessage(messages)]
    if isinstance(messages, (Mapping, Message)):
        return [as_message(messages)]
    return [as_message(m) for m in messages]


class Tool(Attributed):
    """A tool the model may call: `name`, `description`, `parameters` (JSON Schema), `strict`."""

    __slots__ = ()
    fields = frozenset({"name", "description", "parameters", "strict"})

    def __init__(
        self, name: str = "", description: str = "", parameters: Mapping[str, Any] | None = None, **rest: Any
    ) -> None:
        super().__init__(name=name, description=description, parameters=dict(parameters or {}), **rest)

    def wire(self) -> dict[str, Any]:
        """The shape that chat completions expect."""
        function = {k: v for k, v in self.items() if v is not None and k != "type"}
        return {"type": "function", "function": function}


class Usage(Attributed):
    """Token counts of one reply, as the server reported them."""

    __slots__ = ()
    fields = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens"})


class Response:
    """One reply of a model.

    `message` is the assistant's message. `choices[0].message`, `usage`, `id`, `model` read as on an OpenAI reply.
    `tokens` is a `verifiers.records.TokenTrace` when the server returned token ids or log-probabilities.
    """

    __slots__ = (
        "created",
        "finish_reason",
        "id",
        "message",
        "model",
        "model_s",
        "queue_s",
        "raw",
        "tokens",
        "usage",
        "versions",
    )

    def __init__(
        self,
        message: Message | None = None,
        *,
        finish_reason: str | None = "stop",
        usage: Usage | None = None,
        tokens: Any = None,
        versions: Sequence[Any] = (),
        id: str = "",
        model: str = "",
        created: int = 0,
        raw: bytes | None = None,
        queue_s: float = 0.0,
        model_s: float = 0.0,
    ) -> None:
        self.message = message if message is not None else AssistantMessage("")
        if finish_reason == "length" and type(self.message) is AssistantMessage:
            cut = CutMessage.__new__(CutMessage)
            dict.update(cut, self.message)
            self.message = cut
        self.finish_reason = finish_reason
        self.usage = usage
        self.tokens = tokens  # TokenTrace | None
        self.versions = versions  # spans of tokens and the weight version that made them
        self.id, self.model, self.created, self.raw = id, model, created, raw
        self.queue_s = queue_s  # seconds spent waiting for a place or between retries; counts against no deadline
        self.model_s = model_s  # seconds the server worked on the reply that arrived

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def choices(self) -> list[Any]:
        return [_Choice(self)]

    @property
    def text(self) -> str:
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Plain nested dicts, as those of an OpenAI reply."""
        message = self.message.model_dump()
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": message, "logprobs": None}
        usage = None if self.usage is None else dict(self.usage)
        return {
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [choice], "message": message, "usage": usage,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"Response({self.message!r}, finish_reason={self.finish_reason!r})"


class _Choice:
    """The OpenAI view of a `Response`."""

    __slots__ = ("_response",)
    index = 0

    def __init__(self, response: Response) -> None:
        self._response = response

    @property
    def message(self) -> Message:
        return self._response.message

    @property
    def text(self) -> str:
        return self._response.text

    @property
    def finish_reason(self) -> str | None:
        return self._response.finish_reason


class TrajectoryStep(dict[str, Any]):
    """One turn: prompt, completion, response, tokens, reward, advantage, is_truncated, trajectory_id, extras.

    `prompt` of a turn that only adds to the conversation is a view on the shared history, built when it is read:
    keeping a copy in every turn would make memory grow with the square of the turns.
    """

    __slots__ = ("history", "previous", "prompt_length")

    def __init__(self, *args: Any, **items: Any) -> None:
        super().__init__(*args, **items)
        self.history: list[Message] | None = None
        self.prompt_length = 0  # messages of `history` that were sent
        self.previous: TrajectoryStep | None = None  # the turn whose tokens this one's prompt may continue

    @classmethod
    def over(cls, history: list[Message], **items: Any) -> TrajectoryStep:
        """A step whose prompt is all of `history` as it is now."""
        step = cls(**items)
        step.history, step.prompt_length = history, len(history)
        return step

    def __missing__(self, key: str) -> Any:
        if key == "prompt" and self.history is not None:
            return self.history[: self.prompt_length]
        if key == "tokens":
            return self._tokens()
        raise KeyError(key)

    @property
    def trace(self) -> Any:
        """The turn's `records.TokenTrace`, or `None` when the server returned no tokens."""
        return getattr(dict.get(self, "response"), "tokens", None)

    def prompt_ids(self) -> list[int]:
        """All token ids of this turn's prompt: what it shares with the turns before, then its own."""
        chain: list[TrajectoryStep] = [self]
        while chain[-1].trace.prefix_length and chain[-1].previous is not None:
            chain.append(chain[-1].previous)
        ids: list[int] = []
        for step in reversed(chain):
            if step is not chain[-1]:
                ids += step.previous.trace.completion_ids  # type: ignore[union-attr]
                del ids[step.trace.prefix_length :]
            ids += step.trace.prompt_ids
        return ids

    def _tokens(self) -> dict[str, Any] | None:
        """The classic mapping of token lists, built from the compact trace when it is read."""
        trace = self.trace
        if trace is None or not trace.completion_ids:
            return None
        prompt_ids, completion_ids = self.prompt_ids(), list(trace.completion_ids)
        return {
            "prompt_ids": prompt_ids,
            "prompt_mask": [0] * len(prompt_ids),
            "completion_ids": completion_ids,
            "completion_mask": [1] * len(completion_ids),
            "completion_logprobs": list(trace.logprobs),
            "overlong_prompt": False,
            "is_truncated": bool(dict.get(self, "is_truncated")),
            "routed_experts": None,
        }

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or key == "tokens" or (key == "prompt" and self.history is not None)

    def materialised(self) -> dict[str, Any]:
        """A plain dict with every key present."""
        return {"prompt": self.get("prompt"), "tokens": self["tokens"], **self}


INPUT_FIELDS = ("prompt", "answer", "task", "info", "example_id")
_REDIRECTED = frozenset({*INPUT_FIELDS, "oai_tools"})
RolloutInput = dict[str, Any]


class State(dict[str, Any]):
    """All that is known of one rollout while it runs. Authors read and write any key of their own.

    The framework's keys:

    | key | what |
    | --- | --- |
    | input | the dataset row; `prompt`, `answer`, `task`, `info`, `example_id` read and write through to it |
    | client, model, sampling_args, tool_defs | what the next request uses |
    | trajectory, trajectory_id | one `TrajectoryStep` a turn; an id of this rollout |
    | completion | the conversation after the prompt, as far as it has come |
    | reward, metrics, scores | `None` until scored; then number or `None`, numbers by name, `records.Score`s |
    | error | the `vf.Error` that ended the rollout, or `None` |
    | is_completed, is_truncated, stop_condition | whether and why it ended |
    | final_env_response | messages of the environment that end the rollout without another model call |
    | timing, usage | milliseconds by phase; tokens so far |

    `state.rng` is a `random.Random` seeded from the run's seed, the row and the try, so that reruns compare.
    """

    INPUT_FIELDS = list(INPUT_FIELDS)

    _seed: int | None = None
    _rng: random.Random | None = None
    attempt: Any = None  # the framework's bookkeeping (`attempt.Attempt`); no author code reads it
    route: str | None = None  # which member of an EnvGroup made it; None: no group

    @property
    def seed(self) -> int | None:
        return self._seed

    @seed.setter
    def seed(self, value: int | None) -> None:
        self._seed, self._rng = value, None

    @property
    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    def __missing__(self, key: str) -> Any:
        if key in INPUT_FIELDS:
            row = dict.get(self, "input")
            if isinstance(row, dict) and key in row:
                return row[key]
        elif key in DERIVED:
            return DERIVED[key](self)
        raise KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key in _REDIRECTED:
            if key == "oai_tools":  # the name before 0.1.11
                key = "tool_defs"
            else:
                row = dict.get(self, "input")
                if isinstance(row, dict) and key in row:
                    row[key] = value
                    return
        dict.__setitem__(self, key, value)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **items: Any) -> None:
        for key, value in dict(*args, **items).items():  # dict's own would hide what the input has
            self[key] = value

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        if key == "completion":
            return dict.__contains__(self, "trajectory")
        row = dict.get(self, "input") if key in INPUT_FIELDS else None
        return isinstance(row, dict) and key in row

    def __reduce__(self) -> Any:
        return _restore_state, (dict(self), self._seed)

    def __copy__(self) -> State:
        return _restore_state(dict(self), self._seed)


def _restore_state(items: dict[str, Any], seed: int | None) -> State:
    state = State(items)
    state.seed = seed
    return state


def _completion_so_far(state: State) -> Any:
    """What `completion` would be if the rollout ended now; `None` where none is running."""
    return None if state.attempt is None else state.attempt.completion()


def _response_starts(state: State) -> list[int]:
    """Of each reply of a base model, where it begins in the completion's text."""
    steps = dict.get(state, "trajectory") or ()
    given = len(steps[0]["prompt"]) if steps else 0
    return [sum(len(m.get("content") or "") for m in step["prompt"][given:]) for step in steps]


def _wire_tools(state: State) -> list[Any] | None:
    tools = dict.get(state, "tool_defs")
    return tools and [tool.wire() if isinstance(tool, Tool) else tool for tool in tools]


# Computed when they are read, unless somebody wrote them: the completion, and keys of older releases.
DERIVED: dict[str, Callable[[State], Any]] = {
    "completion": _completion_so_far,
    "turn": lambda state: len(dict.get(state, "trajectory") or ()),
    "responses": lambda state: [s["response"] for s in dict.get(state, "trajectory") or ()],
    "responses_start_idx": _response_starts,
    "oai_tools": _wire_tools,
}
