"""Environments for reinforcement learning and evaluation of language models.

    import verifiers as vf

    env = vf.load_environment("math-env")
    results = env.evaluate_sync(client, model="…")

Names are loaded on first touch, so that importing this package costs next to nothing. Its one effect is a finder for
import paths of older releases.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verifiers.compat.paths import classic as _classic
from verifiers.compat.paths import install as _install_old_paths

__version__ = "1.0.0"

_HOMES = {
    "verifiers.types": (
        "AssistantMessage ChatMessage Info Message Messages MessageType Response RolloutInput SamplingArgs State "
        "SystemMessage TextMessage Tool ToolCall ToolMessage TrajectoryStep Usage UserMessage"
    ),
    "verifiers.errors": (
        "AuthenticationError BrowserSandboxError ConfigError DatasetError EmptyModelResponseError EnvironmentFault "
        "EnvironmentLoadError EnvironmentNotFound Error InfraError InvalidModelResponseError JudgeError "
        "MissingKeyError ModelError ModelNotFoundError ModelRequestError ModelTimeoutError ModelUnavailableError "
        "NoSandboxError NotHere OverlongPromptError ResultsError RewardFault SandboxError SetupError ToolCallError "
        "ToolError ToolParseError TunnelError Undecided"
    ),
    "verifiers.records": "Failure RolloutRecord Score TokenTrace Turn",
    "verifiers.calls": "maybe_await",
    "verifiers.data_source": "DataSource",
    "verifiers.dataset": "DatasetBuilder",
    "verifiers.decorators": "cleanup stop teardown",
    "verifiers.parsers": "MaybeThinkParser Parser ThinkParser XMLParser extract_boxed_answer extract_hash_answer",
    "verifiers.clients": (
        "Client ClientConfig Endpoint LocalModel ModelRequest OpenAIChatCompletionsClient "
        "OpenAIChatCompletionsTokenClient OpenAICompletionsClient ScriptedClient as_client"
    ),
    "verifiers.sandbox": (
        "Capabilities ExecResult LocalBackend Sandbox SandboxBackend SandboxLimits SandboxSpec ScriptedSandboxes "
        "open_backend"
    ),
    "verifiers.rubrics": (
        "ChoiceRubric CodeRubric Graded GroupRewardFunc HybridMathRubric InstructionRubric JudgeRubric LOGIC_TASKS "
        "LogicRubric LogicTask MathRubric RewardFunc Rubric RubricGroup ToolRubric WrongAnswer edit_similarity "
        "exact_match numeric_closeness numeric_match read_verdict rouge_l shuffle_options token_f1"
    ),
    "verifiers.envs.environment": "Environment",
    "verifiers.envs.multiturn_env": "MultiTurnEnv",
    "verifiers.envs.singleturn_env": "SingleTurnEnv",
    "verifiers.envs.tool_env": "ToolEnv",
    "verifiers.envs.stateful_tool_env": "StatefulToolEnv",
    "verifiers.envs.env_group": "EnvGroup",
    "verifiers.envs.rlm_env": "RLMEnv",
    "verifiers.envs.agent_env": "AgentActor AgentEnv",
    "verifiers.envs.sandbox_mixin": "SandboxMixin",
    "verifiers.envs.sandbox_env": "SandboxEnv",
    "verifiers.envs.python_env": "PythonEnv",
    "verifiers.envs.bash_env": "BashEnv",
    "verifiers.envs.swe_env": "SWEEnv",
    "verifiers.rubrics.swe_rubric": "SWERubric",
    "verifiers.rubrics.swe_task": "SWETask",
    "verifiers.compat.results": "GenerateOutputs RolloutOutput",
    "verifiers.loading": "ensure_keys load_environment",
    "verifiers.adapters.gym": "GymEnv",
    "verifiers.adapters.harbor": "HarborTask load_harbor_tasks",
    "verifiers.adapters.mcp": "MCPEnv",
    "verifiers.adapters.openenv": "OpenEnvEnv",
    "verifiers.adapters.reasoning_gym": "ReasoningGymEnv",
    "verifiers.adapters.textarena": "TextArenaEnv",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

# Submodules that older code reaches as attributes, without importing them.
_MODULES = frozenset({"clients", "decorators", "envs", "errors", "legacy", "parsers", "rubrics", "types", "utils"})

__all__ = ["__version__", *sorted(_HOME_OF)]

_install_old_paths()


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
    elif name in _MODULES:
        value = importlib.import_module(f"verifiers.{name}")
    else:
        value = _classic("verifiers", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from verifiers.adapters.gym import GymEnv
    from verifiers.adapters.harbor import HarborTask, load_harbor_tasks
    from verifiers.adapters.mcp import MCPEnv
    from verifiers.adapters.openenv import OpenEnvEnv
    from verifiers.adapters.reasoning_gym import ReasoningGymEnv
    from verifiers.adapters.textarena import TextArenaEnv
    from verifiers.calls import maybe_await
    from verifiers.clients import (
        Client,
        ClientConfig,
        Endpoint,
        LocalModel,
        ModelRequest,
        OpenAIChatCompletionsClient,
        OpenAIChatCompletionsTokenClient,
        OpenAICompletionsClient,
        ScriptedClient,
        as_client,
    )
    from verifiers.compat.results import GenerateOutputs, RolloutOutput
    from verifiers.data_source import DataSource
    from verifiers.dataset import DatasetBuilder
    from verifiers.decorators import cleanup, stop, teardown
    from verifiers.envs.agent_env import AgentActor, AgentEnv
    from verifiers.envs.bash_env import BashEnv
    from verifiers.envs.env_group import EnvGroup
    from verifiers.envs.environment import Environment
    from verifiers.envs.multiturn_env import MultiTurnEnv
    from verifiers.envs.python_env import PythonEnv
    from verifiers.envs.rlm_env import RLMEnv
    from verifiers.envs.sandbox_env import SandboxEnv
    from verifiers.envs.sandbox_mixin import SandboxMixin
    from verifiers.envs.singleturn_env import SingleTurnEnv
    from verifiers.envs.stateful_tool_env import StatefulToolEnv
    from verifiers.envs.swe_env import SWEEnv
    from verifiers.envs.tool_env import ToolEnv
    from verifiers.errors import (
        AuthenticationError,
        BrowserSandboxError,
        ConfigError,
        DatasetError,
        EmptyModelResponseError,
        EnvironmentFault,
        EnvironmentLoadError,
        EnvironmentNotFound,
        Error,
        InfraError,
        InvalidModelResponseError,
        JudgeError,
        MissingKeyError,
        ModelError,
        ModelNotFoundError,
        ModelRequestError,
        ModelTimeoutError,
        ModelUnavailableError,
        NoSandboxError,
        NotHere,
        OverlongPromptError,
        ResultsError,
        RewardFault,
        SandboxError,
        SetupError,
        ToolCallError,
        ToolError,
        ToolParseError,
        TunnelError,
        Undecided,
    )
    from verifiers.loading import ensure_keys, load_environment
    from verifiers.parsers import (
        MaybeThinkParser,
        Parser,
        ThinkParser,
        XMLParser,
        extract_boxed_answer,
        extract_hash_answer,
    )
    from verifiers.records import Failure, RolloutRecord, Score, TokenTrace, Turn
    from verifiers.rubrics import (
        LOGIC_TASKS,
        ChoiceRubric,
        CodeRubric,
        Graded,
        GroupRewardFunc,
        HybridMathRubric,
        InstructionRubric,
        JudgeRubric,
        LogicRubric,
        LogicTask,
        MathRubric,
        RewardFunc,
        Rubric,
        RubricGroup,
        ToolRubric,
        WrongAnswer,
        edit_similarity,
        exact_match,
        numeric_closeness,
        numeric_match,
        read_verdict,
        rouge_l,
        shuffle_options,
        token_f1,
    )
    from verifiers.rubrics.swe_rubric import SWERubric
    from verifiers.rubrics.swe_task import SWETask
    from verifiers.sandbox import (
        Capabilities,
        ExecResult,
        LocalBackend,
        Sandbox,
        SandboxBackend,
        SandboxLimits,
        SandboxSpec,
        ScriptedSandboxes,
        open_backend,
    )
    from verifiers.types import (
        AssistantMessage,
        ChatMessage,
        Info,
        Message,
        Messages,
        MessageType,
        Response,
        RolloutInput,
        SamplingArgs,
        State,
        SystemMessage,
        TextMessage,
        Tool,
        ToolCall,
        ToolMessage,
        TrajectoryStep,
        Usage,
        UserMessage,
    )
