"""`RolloutRecord`: one finished rollout as it is saved, compared, published and trained on.

Results files, statistics, adapters and the hub read this and nothing else; none of them sees `State`.
A line of `results.jsonl` is one encoded record. Readers accept every older `schema_version`, so a change may only
add optional fields. Token traces travel apart (`results.tokens.jsonl`), because they outweigh the text by far.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from verifiers.errors import Side
from verifiers.types import Response

SCHEMA_VERSION = 1

# gc=False below: records hold no reference cycles, and thousands of them must not be walked by every collection.

ScoreStatus = Literal["scored", "undecided", "fault"]
RolloutStatus = Literal[
    "scored",  # the reward is a number
    "undecided",  # a score of non-zero weight could not be decided
    "fault",  # a reward function, judge or grader failed
    "failed",  # the rollout itself broke off: see `errors`
    "pending",  # ended, and waits for the rest of its group to be scored
    "unscored",  # scoring was switched off
]


class EnvInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which environment made the record."""

    name: str
    owner: str | None = None  # None: not from a hub
    version: str | None = None  # of the installed distribution; None: a bare module or an object in memory
    wheel_sha256: str | None = None  # None: not installed from a wheel
    dirty: bool | None = None  # files changed since its git commit, or since it was installed; None: nobody can tell


class DataInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which rows it ran on."""

    name: str | None = None
    revision: str | None = None
    rows_hash: str | None = None  # SHA-256 over the rows of the run, 16 hex digits


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    name: str
    served_as: str | None = None  # the name that the server put into its replies, when it is another one
    weight_version: str | None = None


class JudgeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    model: str
    prompt_hash: str
    response: str | None = None  # the end of what it was shown; None: not kept
    reply: str | None = None  # the end of what it said; None: not kept, or a verdict that was known already


class Score(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one reward function said of one rollout. `value` is `None` unless `status` is "scored"."""

    name: str
    weight: float
    value: float | None
    status: ScoreStatus = "scored"
    reason: str | None = None
    side: Side | None = None  # the side that failed
    judge: JudgeInfo | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    side: Side
    type: str  # name of the exception class
    message: str


class VersionSpan(msgspec.Struct, frozen=True, gc=False):
    """Completion tokens [start, end) of a turn were sampled from the weights `version`."""

    start: int
    end: int
    version: str


class TokenTrace(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one turn, in little-endian int32 and float32 buffers: about 12 bytes a token.

    The turn's prompt is the first `prefix_length` tokens of the previous turn (its prompt, then its completion)
    followed by `prompt_buffer`. A prefix shorter than the whole previous turn means that the context was rewritten.
    `completion_buffer` is empty when the server sent log-probabilities without ids; else the two have equal lengths.
    """

    prefix_length: int
    prompt_buffer: bytes
    completion_buffer: bytes
    logprob_buffer: bytes  # empty: none asked for

    @classmethod
    def of(cls, prompt_ids: Any, completion_ids: Any, logprobs: Any = (), prefix_length: int = 0) -> TokenTrace:
        """From sequences of numbers. Raises ValueError when ids and log-probabilities differ in length."""
        if completion_ids and logprobs and len(completion_ids) != len(logprobs):
            raise ValueError(f"{len(completion_ids)} completion ids but {len(logprobs)} log-probabilities")
        return cls(
            prefix_length,
            array("i", prompt_ids).tobytes(),
            array("i", completion_ids).tobytes(),
            array("f", logprobs).tobytes(),
        )

    @property
    def prompt_ids(self) -> array[int]:
        """Ids new in this turn's prompt."""
        return array_of("i", self.prompt_buffer)

    @property
    def completion_ids(self) -> array[int]:
        return array_of("i", self.completion_buffer)

    @property
    def logprobs(self) -> array[float]:
        return array_of("f", self.logprob_buffer)

    def after(self, previous: bytes) -> TokenTrace:
        """The same turn told as a continuation of `previous`, the int32 buffer of all tokens up to this turn.

        `self` must hold its whole prompt (`prefix_length` 0).
        """
        shared = _shared_prefix(previous, self.prompt_buffer)
        return msgspec.structs.replace(self, prefix_length=shared // 4, prompt_buffer=self.prompt_buffer[shared:])


def array_of(code: str, buffer: bytes) -> Any:
    """The numbers in a buffer, of `array`'s type `code`."""
    values = array(code)
    values.frombytes(buffer)
    return values


def _shared_prefix(a: bytes, b: bytes) -> int:
    """Length in bytes of the common prefix of two int32 buffers, found by halving: memcmp does the work."""
    low, high = 0, min(len(a), len(b)) // 4
    if a[: high * 4] == b[: high * 4]:
        return high * 4
    while low < high:
        middle = (low + high + 1) // 2
        if a[low * 4 : middle * 4] == b[low * 4 : middle * 4]:
            low = middle
        else:
            high = middle - 1
    return low * 4


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call of a model: messages [start, end) of the record's `messages` are its reply."""

    start: int
    end: int
    actor: str = "assistant"
    finish_reason: str | None = None  # None: the server gave none
    # None: the prompt is record.prompt + messages[:start], the completion messages[start:end]. A context that was
    # rewritten afterwards is not in `messages` any more; both are here then.
    prompt: list[dict[str, Any]] | None = None
    completion: list[dict[str, Any]] | None = None
    tokens: TokenTrace | None = None
    reward: float | None = None
    versions: list[VersionSpan] = []
    model_s: float = 0.0  # seconds until the reply was complete


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Seconds by where they went. `queue` is waiting for a place at the server and counts against no deadline.

    `total` is from the start to the last turn, without scoring.
    """

    started: str | None = None  # UTC, ISO 8601
    total_s: float = 0.0
    queue_s: float = 0.0
    model_s: float = 0.0
    tool_s: float = 0.0
    sandbox_s: float = 0.0
    score_s: float = 0.0

    def parts(self) -> dict[str, float]:
        """Seconds by part; `other` is what none of the rest accounts for, such as the environment's own code."""
        counted = self.queue_s + self.model_s + self.tool_s + self.sandbox_s
        return {
            "queue": self.queue_s,
            "model": self.model_s,
            "tools": self.tool_s,
            "sandbox": self.sandbox_s,
            "other": max(0.0, self.total_s - counted),
            "scoring": self.score_s,
        }


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Tokens as the server counted them; `None` where it did not say. `cost` needs prices in `endpoints.toml`."""

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    cost: float | None = None


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One rollout, finished. Build it with `recording.record_of(state)`.

    >>> record = RolloutRecord(env=EnvInfo(name="demo"), example_id=0, rollout_index=0, model=ModelInfo(name="m"),
    ...                        prompt=[], messages=[], reward=1.0, status="scored")
    >>> decode_record(encode_record(record)) == record
    True
    """

    env: EnvInfo
    example_id: int
    rollout_index: int
    model: ModelInfo
    prompt: list[dict[str, Any]]
    messages: list[dict[str, Any]]  # the conversation after the prompt, of every role
    reward: float | None  # None: see `status`
    status: RolloutStatus
    schema_version: int = SCHEMA_VERSION
    library_version: str = ""
    args_hash: str | None = None
    data: DataInfo = DataInfo()
    group_id: str | None = None
    seed: int | None = None
    attempt: int = 0  # how often this rollout had to be started again
    actors: list[str] = msgspec.field(default_factory=lambda: ["assistant"])
    sampling: dict[str, Any] = {}
    turns: list[Turn] = []
    answer: Any = None
    info: Any = None
    task: str | None = None
    scores: list[Score] = []
    stop_condition: str | None = None
    is_truncated: bool = False
    errors: list[Failure] = []
    timing: Timing = Timing()
    usage: TokenUsage = TokenUsage()
    state_columns: dict[str, Any] = {}

    @property
    def metrics(self) -> dict[str, float | None]:
        """Every score by name; those of equal name add up, as in a `RubricGroup`."""
        found: dict[str, float | None] = {}
        for score in self.scores:
            value = score.value
            if value is not None and score.name in found:
                before = found[score.name]
                value = None if before is None else before + value
            found[score.name] = value
        return found

    @property
    def key(self) -> tuple[int, int]:
        """What makes a rollout unique in its run."""
        return self.example_id, self.rollout_index


def plain(value: Any) -> Any:
    """What msgspec cannot encode itself: numpy scalars and arrays, paths, exceptions, pydantic models, sets."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, Response):
        return {"id": value.id, "model": value.model, "finish_reason": value.finish_reason, "usage": value.usage}
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=plain)
_decoder = msgspec.json.Decoder(RolloutRecord)


class TraceLine(msgspec.Struct, frozen=True):
    """One line of the token sidecar: the traces of one rollout, one a turn."""

    example_id: int
    rollout_index: int
    turns: list[TokenTrace | None]


_traces = msgspec.json.Decoder(TraceLine)


def encode_json(value: Any) -> bytes:
    """JSON of any value that a record may hold. Raises TypeError or NotImplementedError naming the type."""
    return _encoder.encode(value)


def encode_record(record: RolloutRecord) -> bytes:
    """One line of JSON without its newline. Token traces are left out: see `encode_traces`."""
    if any(turn.tokens is not None for turn in record.turns):
        bare = [msgspec.structs.replace(turn, tokens=None) for turn in record.turns]
        record = msgspec.structs.replace(record, turns=bare)
    return _encoder.encode(record)


def encode_traces(record: RolloutRecord) -> bytes | None:
    """The record's line of the token sidecar, or `None` when no turn has tokens."""
    traces = [turn.tokens for turn in record.turns]
    if not any(traces):
        return None
    return _encoder.encode(TraceLine(record.example_id, record.rollout_index, traces))


def decode_record(line: bytes | str) -> RolloutRecord:
    """Raises msgspec.ValidationError or msgspec.DecodeError for what is not a record."""
    record = _decoder.decode(line)
    if record.schema_version > SCHEMA_VERSION:
        raise msgspec.ValidationError(
            f"record of schema version {record.schema_version}; this library reads up to {SCHEMA_VERSION}: upgrade it"
        )
    return record


def read_records(path: Path, tokens_path: Path | None = None) -> Iterator[RolloutRecord]:
    """Records of a `results.jsonl`, in file order; a torn last line (a killed writer) is left out.

    With `tokens_path` the traces of the sidecar are put back in. Raises msgspec.DecodeError for damage elsewhere.
    """
    traces = {} if tokens_path is None else {(t.example_id, t.rollout_index): t.turns for t in read_traces(tokens_path)}
    for line in whole_lines(path):
        record = decode_record(line)
        found = traces.get(record.key)
        if found is not None and len(found) == len(record.turns):
            turns = [
                msgspec.structs.replace(turn, tokens=trace) for turn, trace in zip(record.turns, found, strict=True)
            ]
            record = msgspec.structs.replace(record, turns=turns)
        yield record


def read_traces(path: Path) -> Iterator[TraceLine]:
    for line in whole_lines(path):
        yield _traces.decode(line)


def whole_lines(path: Path) -> Iterator[bytes]:
    """Lines that end in a newline. What follows the last newline was being written when the writer died."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and line.strip():
                yield line


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line of `results.jsonl`."""
    schema = msgspec.json.schema(RolloutRecord)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "RolloutRecord", **schema}


def content_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of a value's JSON with sorted keys: equal for equal content."""
    return hashlib.sha256(msgspec.json.encode(value, enc_hook=_hashable, order="sorted")).hexdigest()[:16]


def _hashable(value: Any) -> Any:
    """As `plain`; what it refuses is hashed by its bytes or its text, since a hash need not be reversible."""
    if hasattr(value, "tobytes") and hasattr(value, "size"):  # images and arrays
        return hashlib.sha256(value.tobytes()).hexdigest()
    try:
        return plain(value)
    except NotImplementedError:
        return repr(value)


# A record as it may leave home when its environment keeps its test set there. What the model itself wrote stays:
# without that there would be nothing to look at.

MODEL_ROLES = ("assistant", "text")  # "text": a completion that is no chat


def without_answers(record: RolloutRecord) -> RolloutRecord:
    """Prompt, answer and info are gone, and so are the words of whoever may quote them: environment, tools, judges."""
    return msgspec.structs.replace(
        record,
        prompt=[],
        answer=None,
        info=None,
        messages=[_own_words(message) for message in record.messages],
        turns=[_bare_turn(turn) for turn in record.turns],
        scores=[_bare_score(score) for score in record.scores],
        errors=[Failure(side=error.side, type=error.type, message="") for error in record.errors],
        state_columns={},
    )


def _own_words(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    return dict(message) if role in MODEL_ROLES else {"role": role, "content": ""}


def _bare_turn(turn: Turn) -> Turn:
    if turn.prompt is None and turn.completion is None:
        return turn
    kept = None if turn.completion is None else [_own_words(message) for message in turn.completion]
    return msgspec.structs.replace(turn, prompt=None if turn.prompt is None else [], completion=kept)


def _bare_score(score: Score) -> Score:
    judge = score.judge
    if judge is not None:
        judge = msgspec.structs.replace(judge, response=None, reply=None)
    return msgspec.structs.replace(score, reason=None, judge=judge)
