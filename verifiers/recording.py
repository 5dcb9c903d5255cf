"""`record_of`: a finished `State` as a `RolloutRecord`. The last place that reads a State."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from verifiers.compat.shapes import prompt_text
from verifiers.dataset import decoded_info, own_copy
from verifiers.errors import one_line, side_of
from verifiers.records import (
    DataInfo,
    EnvInfo,
    Failure,
    ModelInfo,
    RolloutRecord,
    RolloutStatus,
    Score,
    Timing,
    TokenTrace,
    TokenUsage,
    Turn,
    VersionSpan,
)
from verifiers.types import Message, Response, State, TrajectoryStep, as_messages

ASSISTANT = "assistant"  # the actor of the model that the rollout is of


@cache
def library_version() -> str:
    """Read from the installed package's metadata once: every run of a group asks, and reading takes milliseconds."""
    try:
        return version("verifiers")
    except PackageNotFoundError:  # run from a checkout
        return "0+unknown"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What all records of a run have in common."""

    env: EnvInfo
    args_hash: str | None = None
    data: DataInfo = DataInfo()
    sampling: dict[str, Any] = {}
    prices: tuple[float, float] | None = None  # money for a million tokens in and out; None: unknown
    library_version: str = msgspec.field(default_factory=library_version)


def record_of(
    state: State,
    origin: Origin,
    *,
    rollout_index: int = 0,
    restarts: int = 0,
    is_pending: bool = False,
    columns: Mapping[str, Any] | None = None,
) -> RolloutRecord:
    """The record of a rollout that has ended. `is_pending`: it waits for its group to be scored."""
    prompt: list[Any] = state.attempt.prompt if state.attempt is not None else state.get("prompt") or []
    messages: list[Any] = _completion(state, prompt)
    error = state["error"]
    trajectory = state["trajectory"]
    answer = state.get("answer")
    scores = state.get("scores") or _made_up(state)
    turns = _turns(state, len(prompt), messages)
    return RolloutRecord(
        env=origin.env,
        data=origin.data,
        args_hash=origin.args_hash,
        library_version=origin.library_version,
        example_id=state["example_id"],
        group_id=str(state["example_id"]),
        rollout_index=rollout_index,
        seed=state.seed,
        attempt=restarts,
        model=_model(state, trajectory),
        sampling=origin.sampling,
        prompt=prompt,
        messages=messages,
        turns=turns,
        actors=list(dict.fromkeys((ASSISTANT, *(turn.actor for turn in turns)))),
        answer=None if answer == "" else answer,
        info=state.get("info") or None,
        task=state.route or state.get("task"),
        scores=scores,
        reward=state["reward"],
        status=_status(state, scores, is_pending),
        stop_condition=state["stop_condition"],
        is_truncated=state["is_truncated"] or any(step.get("is_truncated") for step in trajectory),
        errors=[] if error is None else [failure_of(error)],
        timing=_timing(state),
        usage=_usage(state, origin.prices),
        state_columns=dict(columns or {}),
    )


def failure_of(error: BaseException) -> Failure:
    """The chain's root is told with it: 'ToolCallError: … (from ValueError: …)' would hide nothing."""
    message = one_line(error, 2000)
    name = type(error).__name__
    return Failure(side=side_of(error), type=name, message=message.removeprefix(f"{name}: "))


def _completion(state: State, prompt: list[Message]) -> list[Message]:
    completion = state["completion"]
    if isinstance(completion, list):
        return completion
    attempt = state.attempt
    if attempt is not None and attempt.conversation is not None:
        return attempt.conversation[attempt.prompt_kept :]
    return [] if not completion else [Message(role="text", content=completion)]


def _status(state: State, scores: Sequence[Score], is_pending: bool = False) -> RolloutStatus:
    if state["error"] is not None:
        return "failed"
    if is_pending:
        return "pending"
    if state["reward"] is not None:
        return "scored"
    statuses = {score.status for score in scores if score.weight}
    return "fault" if "fault" in statuses else "undecided" if "undecided" in statuses else "unscored"


def _made_up(state: State) -> list[Score]:
    """Scores of a rubric that wrote only `metrics` and `reward`."""
    return [
        Score(name=name, weight=0.0, value=value, status="fault" if value is None else "scored")
        for name, value in (state.get("metrics") or {}).items()
    ]


def _model(state: State, trajectory: Sequence[TrajectoryStep]) -> ModelInfo:
    served, weights = None, None
    step = next((step for step in reversed(trajectory) if _actor(step) == ASSISTANT), None)
    if step is not None:
        response = dict.get(step, "response")
        served = getattr(response, "model", None) or None
        versions = getattr(response, "versions", ())
        weights = versions[-1].version if versions else None
    return ModelInfo(
        name=state["model"], served_as=served if served != state["model"] else None, weight_version=weights
    )


def _shared_history(state: State, prompt_length: int, messages: list[Message]) -> list[Message] | None:
    """The conversation, if prompt and messages of the record are what it consists of; turns then refer to them."""
    attempt = state.attempt
    if attempt is None or attempt.conversation is None or attempt.prompt_kept != prompt_length:
        return None
    added = attempt.conversation[prompt_length:]
    return attempt.conversation if messages[: len(added)] == added else None


def _turns(state: State, prompt_length: int, messages: list[Message]) -> list[Turn]:
    conversation = _shared_history(state, prompt_length, messages)
    turns = []
    before: Any = None
    for step in state["trajectory"]:
        response, completion = dict.get(step, "response"), dict.get(step, "completion") or []
        is_shared = isinstance(step, TrajectoryStep) and step.history is conversation and conversation is not None
        start = max(0, step.prompt_length - prompt_length) if is_shared else 0
        turns.append(
            Turn(
                start=start,
                end=start + len(completion) if is_shared else 0,
                actor=_actor(step),
                finish_reason=getattr(response, "finish_reason", None),
                prompt=None if is_shared else step.get("prompt"),
                completion=None if is_shared else completion,
                tokens=_trace(step, response, before),
                reward=dict.get(step, "reward"),
                versions=[
                    v if isinstance(v, VersionSpan) else VersionSpan(*v) for v in getattr(response, "versions", ())
                ],
                model_s=round(getattr(response, "model_s", 0.0), 6),
            )
        )
        before = step
    return turns


def _actor(step: Any) -> str:
    """Who spoke. An environment that asks several models names the others in `extras["actor"]` of their turns."""
    extras = dict.get(step, "extras")
    return str(extras.get("actor") or ASSISTANT) if extras and isinstance(extras, Mapping) else ASSISTANT


def _trace(step: Any, response: Any, before: Any) -> TokenTrace | None:
    """The turn's tokens. Where the turn they continue was left out of the trajectory they are told whole."""
    trace: TokenTrace | None = getattr(response, "tokens", None)
    if trace is None or not trace.prefix_length or not isinstance(step, TrajectoryStep) or step.previous is before:
        return trace
    return TokenTrace.of(step.prompt_ids(), trace.completion_ids, trace.logprobs)


def _timing(state: State) -> Timing:
    if state.attempt is None:
        return Timing()
    clock = state.attempt.clock
    score_s = (state["timing"] or {}).get("scoring_ms", 0.0) / 1000
    return Timing(
        started=clock.started,
        total_s=round(clock.total_s, 6),
        queue_s=clock.queue_s and round(clock.queue_s, 6),
        model_s=round(clock.model_s, 6),
        tool_s=clock.tool_s and round(clock.tool_s, 6),
        sandbox_s=clock.sandbox_s and round(clock.sandbox_s, 6),
        score_s=round(score_s, 6),
    )


def _usage(state: State, prices: tuple[float, float] | None) -> TokenUsage:
    usage = state["usage"]
    if not isinstance(usage, dict):
        return TokenUsage()
    prompt, completion = usage["input_tokens"], usage["output_tokens"]
    cost = None if prices is None else (prompt * prices[0] + completion * prices[1]) / 1e6
    return TokenUsage(prompt=prompt, completion=completion, reasoning=usage.get("reasoning_tokens"), cost=cost)


def column(state: State, name: str, is_saved: bool) -> Any:
    """A state column. What goes to disk is spelled out; in memory the trajectory stays the live one."""
    value = state.get(name)
    if name == "trajectory" and is_saved:
        return [step.materialised() if isinstance(step, TrajectoryStep) else step for step in value or ()]
    return value


FRAMEWORK_KEYS = frozenset(
    {
        "input", "client", "model", "sampling_args", "tool_defs", "trajectory", "trajectory_id", "completion", "reward",
        "metrics", "scores", "error", "is_completed", "is_truncated", "stop_condition", "final_env_response", "timing",
        "usage", "advantage",
    }
)  # fmt: skip


def author_state(state: State) -> dict[str, Any]:
    """The keys that the environment's author added."""
    return {key: value for key, value in state.items() if key not in FRAMEWORK_KEYS}


def state_of(
    record: RolloutRecord, extra: Mapping[str, Any], client: Any = None, row: Mapping[str, Any] | None = None
) -> State:
    """A state to be scored, from a saved record, the author's own keys and the row: no model call is repeated."""
    prompt, messages = as_messages(record.prompt), as_messages(record.messages)
    given = own_copy(dict(row or {}))
    is_text = bool(prompt) and all(m.get("role") == "text" for m in prompt)
    row = {**given, "prompt": prompt_text(prompt) if is_text else prompt, "example_id": record.example_id}
    row["task"] = given.get("src_task", given.get("task", record.task))  # the member of a group saw its own task
    row["info"] = decoded_info(given.get("info"))
    row.update({key: value for key, value in (("answer", record.answer), ("info", record.info)) if value is not None})
    is_text = bool(messages) and all(m.get("role") == "text" for m in messages)
    usage = record.usage
    state = State(
        input=row,
        client=client,
        model=record.model.name,
        sampling_args=dict(record.sampling),
        tool_defs=None,
        trajectory=[],
        trajectory_id="",
        completion="".join(m["content"] for m in messages) if is_text else messages,
        reward=None,
        metrics=None,
        scores=None,
        error=None,
        is_completed=True,
        is_truncated=record.is_truncated,
        stop_condition=record.stop_condition,
        final_env_response=None,
        timing={"start_time": 0.0, "generation_ms": 1000 * record.timing.total_s, "scoring_ms": 0.0, "total_ms": 0.0},
        usage=None
        if usage.prompt is None
        else {"input_tokens": usage.prompt, "output_tokens": usage.completion, "reasoning_tokens": usage.reasoning},
        **extra,
    )
    state.route, state.seed = record.task, record.seed
    history = prompt + messages
    for turn in record.turns:
        step = TrajectoryStep(
            completion=turn.completion or history[len(prompt) + turn.start : len(prompt) + turn.end],
            reward=None, advantage=None, is_truncated=turn.finish_reason == "length", trajectory_id="",
            extras={} if turn.actor == ASSISTANT else {"actor": turn.actor},
        )  # fmt: skip
        reply = as_messages(step["completion"])
        step["response"] = Response(reply[0] if reply else None, finish_reason=turn.finish_reason, tokens=turn.tokens)
        if turn.prompt is None:
            step.history, step.prompt_length = history, len(prompt) + turn.start
        else:
            step["prompt"] = as_messages(turn.prompt)
        step.previous = state["trajectory"][-1] if state["trajectory"] else None
        state["trajectory"].append(step)
    return state


def scored(record: RolloutRecord, state: State) -> RolloutRecord:
    """`record`, which was pending, with the scores that its rebuilt state has now."""
    scores = state.get("scores") or _made_up(state)
    return msgspec.structs.replace(
        record,
        scores=scores,
        reward=state["reward"],
        status=_status(state, scores),
        timing=msgspec.structs.replace(record.timing, score_s=state["timing"]["scoring_ms"] / 1000),
    )
