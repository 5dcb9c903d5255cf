"""Types that classic releases had in `verifiers.types`, for annotations and for code that fills one in.

What moves in a rollout is in `verifiers.types`; these are only the shapes of the views that authors know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from verifiers.types import AssistantMessage, Attributed, ChatMessage, Response, RolloutInput, SamplingArgs

ClientType = Literal["openai_completions", "openai_chat_completions", "openai_chat_completions_token"]
FinishReason = Literal["stop", "length", "tool_calls"] | None
JsonPrimitive = Literal["string", "number", "integer", "boolean", "array", "object"]
IndividualRewardFunc = Callable[..., float | Awaitable[float]]
ModelResponse = Response | None
BaseRolloutInput = RolloutInput
Endpoints = dict[str, Any]
ChatMessages = list[ChatMessage]
GenerateInputs = dict[str, list[Any]]  # columns, as `generate` took them before 0.1.8
StartCallback = Callable[..., None]
ProgressCallback = Callable[..., None]
LogCallback = Callable[[str], None]


class CustomBaseModel(Attributed):
    """A dict that reads by attribute, with defaults."""

    __slots__ = ()
    defaults: dict[str, Any] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__({**self.defaults, **values})

    @classmethod
    def model_validate(cls, values: Any) -> Any:
        return values if isinstance(values, cls) else cls(**dict(values))


# Parts of a message's content are plain dicts everywhere; these make them.


class TextContentPart(CustomBaseModel):
    __slots__ = ()
    defaults = {"type": "text"}


class AdvancedConfigs(CustomBaseModel):
    """Settings of a sandbox that the hosted service knows, for code that fills them in."""

    __slots__ = ()


class ImageUrlSource(CustomBaseModel):
    __slots__ = ()


class ImageUrlContentPart(CustomBaseModel):
    __slots__ = ()
    defaults = {"type": "image_url"}


class InputAudioSource(CustomBaseModel):
    __slots__ = ()


class InputAudioContentPart(CustomBaseModel):
    __slots__ = ()
    defaults = {"type": "input_audio"}


class GenericContentPart(CustomBaseModel):
    __slots__ = ()


ContentPart = dict[str, Any]
MessageContent = str | list[ContentPart]
ThinkingBlock = dict[str, Any]


class ResponseTokens(CustomBaseModel):
    __slots__ = ()
    fields = frozenset(
        {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "completion_logprobs", "routed_experts"}
    )


class ResponseMessage(AssistantMessage):
    """An assistant message; `finish_reason`, `is_truncated` and `tokens` are kept as keys when they are given."""

    __slots__ = ()


class TrajectoryStepTokens(TypedDict):
    prompt_ids: list[int]
    prompt_mask: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    completion_logprobs: list[float]
    overlong_prompt: bool
    is_truncated: bool
    routed_experts: list[list[list[int]]] | None


class TokenUsage(TypedDict):
    input_tokens: float
    output_tokens: float


class VersionInfo(TypedDict):
    vf_version: str
    vf_commit: str | None
    env_version: str | None
    env_commit: str | None


class RolloutTiming(TypedDict, total=False):
    start_time: float
    generation_ms: float
    scoring_ms: float
    total_ms: float


class ErrorInfo(TypedDict):
    error: str
    error_chain_repr: str
    error_chain_str: str


class GenerateMetadata(TypedDict, total=False):
    env_id: str
    env_args: dict[str, Any]
    model: str
    base_url: str
    num_examples: int
    rollouts_per_example: int
    sampling_args: SamplingArgs
    date: str
    time_ms: float
    avg_reward: float
    avg_metrics: dict[str, float]
    avg_error: float
    pass_at_k: dict[str, float]
    pass_all_k: dict[str, float]
    pass_threshold: float
    usage: TokenUsage | None
    version_info: VersionInfo
    state_columns: list[str]
    path_to_save: Path
    tools: list[Any] | None


class SandboxState(TypedDict):
    ready: bool
    ready_wait_time: float
    command_execution_times: list[float]


@dataclass
class ProcessedOutputs:
    """Rollouts as token lists with masks, for a trainer: one entry a rollout."""

    prompt_ids: list[list[int]] = field(default_factory=list)
    prompt_mask: list[list[int]] = field(default_factory=list)
    completion_ids: list[list[int]] = field(default_factory=list)
    completion_mask: list[list[int]] = field(default_factory=list)
    completion_logprobs: list[list[float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    is_truncated: list[bool] = field(default_factory=list)


class EvalConfig(CustomBaseModel):
    """One evaluation as a value. `vf-eval` reads its own, from flags and TOML."""

    __slots__ = ()
    defaults = {"num_examples": 5, "rollouts_per_example": 3, "max_concurrent": 32, "max_retries": 0}
    fields = frozenset(
        {
            "client_config", "endpoint_id", "env_args", "env_dir_path", "env_id", "extra_env_kwargs",
            "hf_hub_dataset_name", "independent_scoring", "model", "output_dir", "resume_path", "sampling_args",
            "save_results", "save_to_hf_hub", "state_columns", "verbose",
        }
    )  # fmt: skip


class EvalRunConfig(CustomBaseModel):
    __slots__ = ()
    fields = frozenset({"evals", "heartbeat_url"})
