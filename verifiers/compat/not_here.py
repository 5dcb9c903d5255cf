"""Classic names with no code behind them here: they import, can be subclassed, and raise `NotHere` when used.

A module that mentions one of them in a branch it does not take goes on working.
"""

from __future__ import annotations

from typing import Any, NoReturn

from verifiers.errors import NotHere

_AGENT = (
    "run the agent's program, as it is, in a vf.AgentEnv (docs/agents.md), with its settings in the files of the "
    "SandboxSpec and its task in the prompt"
)
_TRAINER = (
    "training is not part of this library. Roll out with env.evaluate(…), and give a trainer the records "
    "(their token traces hold ids and log-probabilities)"
)
_BROWSER = (
    "browsers are not part of this library. Drive one from the tools of a vf.StatefulToolEnv, e.g. with Playwright"
)

# Values that old modules used as defaults of their own arguments.
DEFAULT_RLM_MAX_TURNS = 100
DEFAULT_DISABLED_TOOLS = ["apply_patch", "write", "multiedit", "glob", "todowrite", "todoread", "websearch"]
LEAN_SYSTEM_PROMPT = "Prove the Lean 4 theorem in the given file: put a proof that compiles in place of each `sorry`."

# What to use instead, by name. Other names of the same old modules: `INSTEAD_OF`.
INSTEAD = {
    **dict.fromkeys(("ComposableEnv", "OpenCodeEnv", "OpenCodeQAEnv", "OpenCodeRLMEnv"), _AGENT),
    **dict.fromkeys(("opencode_harness", "rlm_harness"), _AGENT),
    **dict.fromkeys(
        (
            "GRPOConfig", "GRPOTrainer", "RLConfig", "RLTrainer", "get_model", "get_model_and_tokenizer",
            "grpo_defaults", "lora_defaults",
        ),
        _TRAINER,
    ),
    **dict.fromkeys(
        ("AnthropicMessagesClient", "OpenAIResponsesClient", "RendererClient"),
        "use a vf.ClientConfig with the provider's OpenAI-compatible address for chat completions",
    ),
    "BrowserEnv": _BROWSER,
    "HarborEnv": "read its tasks with vf.load_harbor_tasks, give their rows to a vf.SandboxEnv, and run their tests in "
    "its post_rollout",
    "load_prime_config": "no hosted service is configured here. Name the endpoint in a vf.ClientConfig, or set "
    "OPENAI_BASE_URL and OPENAI_API_KEY",
}  # fmt: skip

# The same for everything else of an old module, by the start of its path; the longest that fits counts.
INSTEAD_OF = {
    "verifiers": "it was an internal of another implementation; see docs/compatibility.md for what there is",
    "verifiers.clients": "a vf.ClientConfig or vf.Endpoint describes any OpenAI-compatible server",
    "verifiers.envs.experimental": _AGENT,
    "verifiers.envs.experimental.composable.tasksets.harbor": INSTEAD["HarborEnv"],
    "verifiers.envs.experimental.rlm_env": "vf.RLMEnv runs its interpreter itself, on this machine; see docs/rlm.md",
    "verifiers.envs.integrations.browser_env": _BROWSER,
    "verifiers.rl": _TRAINER,
    "verifiers.rubrics.experimental": "score with vf.HybridMathRubric, outside a sandbox",
    "verifiers.trainers": _TRAINER,
    "verifiers.utils.eval_display": "evaluations are shown by vf-eval",
    "verifiers.utils.eval_utils": "evaluations are run by vf-eval, or by env.evaluate(…)",
    "verifiers.utils.install_utils": "environments are installed by vf-install",
    "verifiers.utils.save_utils": "results are saved by env.evaluate(…, save_results=True)",
    "verifiers.utils.rlm_data_serialization_utils": "write the data to files in any form, and name their folder in "
    "info['context_dir'] for a vf.RLMEnv",
}


def absent(name: str, module: str = "verifiers") -> Any:
    """A class for a name in CapWords, else a function; using it raises NotHere. Nothing is known of other modules."""
    instead = INSTEAD.get(name) or _instead_of(module)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotHere(f"{module}.{name} can be imported, but not used: {instead}.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = module
    refuse.__doc__ = f"Not here: {instead}."
    if not name[0].isupper():
        return refuse
    # `__new__`, so that the constructor of a subclass, which may do much before it calls ours, is not even begun
    return type(name, (), {"__new__": refuse, "__module__": module, "__doc__": refuse.__doc__})


def _instead_of(module: str) -> str:
    while module not in INSTEAD_OF:
        module = module.rpartition(".")[0]
    return INSTEAD_OF[module]


def __getattr__(name: str) -> Any:
    if name not in INSTEAD:
        raise AttributeError(f"module '{__name__}' has no name '{name}'")
    value = globals()[name] = absent(name)
    return value
