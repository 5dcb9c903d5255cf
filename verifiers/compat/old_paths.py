"""The tables of `compat.paths`: which names each old module had, and where a name lives now. Nothing is imported."""

from __future__ import annotations


def _by_name(groups: dict[str, str]) -> dict[str, str]:
    """`old` or `old=new` → where it is: `module:new`."""
    homes = {}
    for module, names in groups.items():
        for entry in names.split():
            old, _, new = entry.partition("=")
            homes[old] = f"{module}:{new or old}"
    return homes


# Names that are not public but have code here. All others of `OLD` are public, or raise on use.
HOMES = _by_name(
    {
        "builtins": "from_raw_content_part=dict",
        "verifiers.compat.example_tools": "calculator python",
        "verifiers.compat.retries": "maybe_retry",
        "contextlib": "NullContext=nullcontext NullAsyncContext=nullcontext",
        "openai.types": "Completion",
        "openai.types.chat": (
            "ChatCompletion ChatCompletionMessageParam ChatCompletionMessageToolCall ChatCompletionRole "
            "ChatCompletionToolParam"
        ),
        "tomllib": "load_toml=load",
        "verifiers.clients": "EndpointClientConfig",
        "verifiers.compat.resolved_clients": "resolve_client",
        "verifiers.compat.classic_types": (
            "AdvancedConfigs BaseRolloutInput ChatMessages ClientType ContentPart CustomBaseModel Endpoints ErrorInfo "
            "EvalConfig EvalRunConfig FinishReason GenerateInputs GenerateMetadata GenericContentPart "
            "ImageUrlContentPart ImageUrlSource "
            "IndividualRewardFunc InputAudioContentPart InputAudioSource JsonPrimitive LogCallback MessageContent "
            "ModelResponse ProcessedOutputs ProgressCallback ResponseMessage ResponseTokens "
            "RolloutTiming SandboxState StartCallback TextContentPart ThinkingBlock TokenUsage "
            "TrajectoryStepTokens VersionInfo"
        ),
        "verifiers.compat.episodic_sum": (
            "EpisodicSumRubric OpenEnvEpisodicSumRubric=EpisodicSumRubric sum_step_rewards"
        ),
        "verifiers.compat.sandbox_service": (
            "APIError APITimeoutError AsyncSandboxClient DownloadTimeoutError PaymentRequiredError "
            "SandboxFileNotFoundError SandboxImagePullError SandboxNotRunningError SandboxOOMError SandboxTimeoutError "
            "UnauthorizedError UploadTimeoutError"
        ),
        "verifiers.compat.scores": "RolloutScore RolloutScores",
        "verifiers.compat.error_chain": "ErrorChain get_error_chain get_vf_error_chain",
        "verifiers.compat.example_datasets": (
            "BOXED_SYSTEM_PROMPT THINK_BOXED_SYSTEM_PROMPT get_preprocess_fn load_example_dataset strip_non_numeric"
        ),
        "verifiers.compat.functions": (
            "VALID_TOOL_CONTENT_PART_TYPES cleanup_message=without_nones cleanup_messages=strip_nones_from_content "
            "concat_messages convert_func_to_oai_tool convert_func_to_tool_def "
            "discover_decorated filter_signature is_valid_tool_content_parts "
            "maybe_normalize_messages=normalize_messages maybe_semaphore message_to_printable messages_to_printable "
            "normalize_messages parse_is_truncated parse_response_message parse_response_messages "
            "parse_response_tokens sanitize_tool_calls serialize_message_for_output "
            "serialize_messages_for_output setup_openai_client strip_nones_from_content with_sem write_temp_file"
        ),
        "verifiers.compat.formatting": "format_dataset",
        "verifiers.compat.logs": (
            "JsonFormatter LOGGER_NAME format_messages=messages_text log_level log_once "
            "print_prompt_completions_sample print_time quiet_datasets quiet_verifiers setup_logging truncate "
            "warning_once"
        ),
        "verifiers.compat.not_here": "DEFAULT_DISABLED_TOOLS DEFAULT_RLM_MAX_TURNS LEAN_SYSTEM_PROMPT",
        # `except` clauses name these, so they are errors that can be caught
        "verifiers.errors": (
            "AgentError=InfraError PythonWorkerDeadError=SandboxError PythonWorkerNotReadyError=SandboxError "
            "PythonWorkerRequestError=SandboxError RLMSandboxCommandTimeout=SandboxError RLMSessionError=SandboxError "
            "SandboxCreationError=SandboxError "
            "SandboxNotReadyError=SandboxError SandboxSetupError=SandboxError "
            "SubLLMEmptyModelResponseError=EmptyModelResponseError"
        ),
        "verifiers.envs.cli_agent_env": "CliAgentEnv CliAgentMonitorRubric",
        "verifiers.envs.multiturn_env": "MultiTurnMonitorRubric=MultiTurnMonitor",
        "verifiers.envs.python_env": "PythonMonitorRubric PythonWorkerState",
        "verifiers.envs.sandbox_client": (
            "BackgroundJob BackgroundJobStatus CommandResponse CommandTimeoutError "
            "ThreadedAsyncSandboxClient=SandboxClient"
        ),
        "verifiers.envs.sandbox_env": "SandboxMonitorRubric",
        "verifiers.envs.sandbox_mixin": "is_retryable_sandbox_api_error is_retryable_sandbox_read_error",
        "verifiers.envs.sandbox_request": "CreateSandboxRequest",
        "verifiers.envs.sub_model_env": (
            "RLMCodeExecutionTimeout RLMSetupError RLMWorkerError RLMWorkerRecoveryError=RLMWorkerError SubLLMResult "
            "SubLLMTurn"
        ),
        "verifiers.envs.rlm_monitor": "RLMMonitorRubric",
        "verifiers.rubrics.judge_rubric": "DEFAULT_JUDGE_PROMPT",
        "verifiers.rubrics.tool_rubric": "ToolMonitorRubric=ToolRubric",
        "verifiers.types": "from_raw_message=as_message",
    }
)

# One name that two modules had for two things; the others mean what `HOMES` says.
HOMES_IN = {
    "verifiers.envs.experimental.sandbox_mixin": {
        "SandboxMonitorRubric": "verifiers.envs.sandbox_mixin:SandboxMonitorRubric"
    }
}

_LOGS = "log_level print_prompt_completions_sample quiet_verifiers setup_logging"
_TRAINING = "GRPOConfig GRPOTrainer RLConfig RLTrainer grpo_defaults lora_defaults"
_MODELS = "get_model get_model_and_tokenizer"
_TYPES = """
    AssistantMessage BaseRolloutInput ChatCompletion ChatCompletionMessageParam ChatCompletionMessageToolCall
    ChatCompletionRole ChatCompletionToolParam ChatMessage ChatMessages ClientConfig ClientType Completion ContentPart
    CustomBaseModel DatasetBuilder Endpoint EndpointClientConfig Endpoints ErrorInfo EvalConfig EvalRunConfig
    Error FinishReason GenerateInputs GenerateMetadata GenerateOutputs GenericContentPart GroupRewardFunc
    ImageUrlContentPart
    ImageUrlSource IndividualRewardFunc InputAudioContentPart InputAudioSource JsonPrimitive LogCallback
    MessageContent ModelResponse ProcessedOutputs ProgressCallback ResponseMessage ResponseTokens RewardFunc
    RolloutOutput RolloutScore RolloutScores RolloutTiming StartCallback TextContentPart ThinkingBlock TokenUsage
    TrajectoryStepTokens VersionInfo
"""
_COMPOSABLE = "ComposableEnv Harness SandboxSpec SandboxTaskSet Task TaskSet discover_sibling_dir"
_OPENCODE = """
    DEFAULT_DISABLED_TOOLS build_opencode_config build_opencode_run_command opencode_harness
"""
_SWE = "make_multiswe_taskset make_openswe_taskset make_r2e_taskset make_swe_taskset make_swebench_taskset"
_HARBOR = "HarborDatasetRubric HarborDatasetTaskSet HarborRubric HarborTaskSet"
_EXPERIMENTAL = "verifiers.envs.experimental"
_TASKSETS = f"{_EXPERIMENTAL}.composable.tasksets"

_OLD = {
    # names of `import verifiers as vf` that are not in `vf.__all__`
    "verifiers": f"""
        {_LOGS} {_TRAINING} {_MODELS} {_TYPES} AnthropicMessagesClient BOXED_SYSTEM_PROMPT BrowserEnv CliAgentEnv
        ComposableEnv ErrorChain GymEnv HarborEnv MCPEnv OpenAIResponsesClient OpenCodeEnv OpenCodeQAEnv OpenEnvEnv
        PythonEnv ReasoningGymEnv RendererClient SandboxEnv SandboxMixin SandboxSpec
        THINK_BOXED_SYSTEM_PROMPT TextArenaEnv convert_func_to_tool_def filter_signature load_example_dataset
        load_prime_config normalize_messages
        opencode_harness parse_response_messages setup_openai_client
    """,
    "verifiers.clients": "AnthropicMessagesClient resolve_client",
    "verifiers.clients.anthropic_messages_client": "AnthropicMessagesClient",
    "verifiers.clients.openai_chat_completions_client": "OpenAIChatCompletionsClient",
    "verifiers.clients.openai_chat_completions_token_client": "OpenAIChatCompletionsTokenClient",
    "verifiers.clients.openai_completions_client": "OpenAICompletionsClient",
    "verifiers.decorators": "discover_decorated",
    "verifiers.envs": "",
    "verifiers.envs.env_group": "",
    "verifiers.envs.environment": "",
    "verifiers.envs.multiturn_env": "MultiTurnMonitorRubric",
    "verifiers.envs.singleturn_env": "",
    "verifiers.envs.python_env": """
        PythonEnv PythonMonitorRubric PythonWorkerDeadError PythonWorkerNotReadyError PythonWorkerRequestError
        PythonWorkerState
    """,
    "verifiers.envs.sandbox_env": """
        AdvancedConfigs CreateSandboxRequest SandboxCreationError SandboxEnv SandboxMonitorRubric SandboxNotReadyError
        SandboxState
    """,
    "verifiers.envs.stateful_tool_env": "filter_signature",
    "verifiers.envs.tool_env": "ToolMonitorRubric",
    # up to 0.1.8
    "verifiers.envs.reasoninggym_env": "ReasoningGymEnv",
    "verifiers.envs.textarena_env": "TextArenaEnv",
    "verifiers.envs.integrations": "",
    "verifiers.envs.integrations.browser_env": "BrowserEnv",
    "verifiers.envs.integrations.browser_env.browser_env": "BrowserEnv ModeType",
    "verifiers.envs.integrations.openenv_env": "OpenEnvEnv OpenEnvEpisodicSumRubric",
    "verifiers.envs.integrations.reasoninggym_env": "ReasoningGymEnv",
    "verifiers.envs.integrations.textarena_env": "TextArenaEnv",
    _EXPERIMENTAL: f"{_COMPOSABLE} SandboxMixin",
    f"{_EXPERIMENTAL}.cli_agent_env": "AgentError CliAgentEnv CliAgentMonitorRubric",
    f"{_EXPERIMENTAL}.gym_env": """
        EpisodicSumRubric GymEnv StepResetEnv normalize_reset normalize_step sum_step_rewards
    """,
    f"{_EXPERIMENTAL}.harbor_env": "HarborEnv",
    f"{_EXPERIMENTAL}.mcp_env": "MCPEnv MCPServerConfig MCPServerConnection MCPToolWrapper",
    f"{_EXPERIMENTAL}.opencode_env": "OpenCodeEnv OpenCodeMonitorRubric",
    f"{_EXPERIMENTAL}.opencode_qa_env": "OpenCodeQAEnv",
    f"{_EXPERIMENTAL}.opencode_rlm_env": "OpenCodeRLMEnv OpenCodeRLMMonitorRubric",
    f"{_EXPERIMENTAL}.rlm_env": """
        RLMCodeExecutionTimeout RLMEnv RLMExecResult RLMExecutor RLMMonitorRubric RLMSandboxCommandTimeout
        RLMSessionError RLMSetupError RLMWorkerError RLMWorkerPaths RLMWorkerRecoveryError
        SubLLMEmptyModelResponseError SubLLMResult SubLLMTurn
    """,
    f"{_EXPERIMENTAL}.sandbox_mixin": """
        CommandTimeoutError CreateSandboxRequest SandboxCreationError SandboxMixin SandboxMonitorRubric
        SandboxNotReadyError SandboxSetupError is_retryable_sandbox_api_error is_retryable_sandbox_read_error
    """,
    f"{_EXPERIMENTAL}.composable": _COMPOSABLE,
    f"{_EXPERIMENTAL}.composable.composable_env": "ComposableEnv",
    f"{_EXPERIMENTAL}.composable.harness": "Harness",
    f"{_EXPERIMENTAL}.composable.task": "SandboxSpec SandboxTaskSet Task TaskSet discover_sibling_dir",
    f"{_EXPERIMENTAL}.composable.harnesses": f"{_OPENCODE} DEFAULT_RLM_MAX_TURNS rlm_harness",
    f"{_EXPERIMENTAL}.composable.harnesses.opencode": f"{_OPENCODE} build_install_script",
    f"{_EXPERIMENTAL}.composable.harnesses.rlm": """
        DEFAULT_RLM_MAX_TURNS build_install_script build_run_command rlm_harness
    """,
    _TASKSETS: f"{_SWE} {_HARBOR} CPRubric CPTaskSet LEAN_SYSTEM_PROMPT LeanTaskSet MathTaskSet",
    f"{_TASKSETS}.cp": "CPRubric CPTaskSet",
    f"{_TASKSETS}.cp.cp_task": "CPRubric CPTaskSet",
    f"{_TASKSETS}.harbor": _HARBOR,
    f"{_TASKSETS}.harbor.harbor": _HARBOR,
    f"{_TASKSETS}.lean": "LEAN_SYSTEM_PROMPT LeanTaskSet",
    f"{_TASKSETS}.lean.lean_task": "LEAN_SYSTEM_PROMPT LeanRubric LeanTaskSet",
    f"{_TASKSETS}.math": "MathTaskSet",
    f"{_TASKSETS}.math.math_task": "MathTaskSet",
    f"{_TASKSETS}.swe": _SWE,
    f"{_TASKSETS}.swe.swe_tasksets": _SWE,
    f"{_TASKSETS}.swe.multi_swe": "MultiSWERubric MultiSWETaskSet",
    f"{_TASKSETS}.swe.openswe": "OpenSWERubric OpenSWETaskSet",
    f"{_TASKSETS}.swe.r2e_gym": "R2EGymTaskSet R2ERubric",
    f"{_TASKSETS}.swe.swe_bench": "SWEBenchRubric SWEBenchTaskSet",
    "verifiers.parsers": "",
    "verifiers.parsers.parser": "",
    "verifiers.parsers.think_parser": "",
    "verifiers.parsers.xml_parser": "",
    "verifiers.rl": "",
    "verifiers.rl.trainer": _TRAINING,
    "verifiers.rl.trainer.utils": _MODELS,
    "verifiers.rubrics.experimental": "",
    "verifiers.rubrics.experimental.hybrid_math_rubric": (
        "DEFAULT_JUDGE_PROMPT HybridMathRubric RemoteHybridMathRubric"
    ),
    "verifiers.rubrics": "",
    "verifiers.rubrics.judge_rubric": "",
    "verifiers.rubrics.math_rubric": "",
    "verifiers.rubrics.rubric": "",
    "verifiers.rubrics.rubric_group": "",
    "verifiers.rubrics.tool_rubric": "",
    "verifiers.rubrics.utils": "",
    "verifiers.rubrics.utils.judge_utils": "DEFAULT_JUDGE_PROMPT",
    "verifiers.rubrics.utils.math_utils": "extract_answer extract_boxed_answer grade_answer grade_answer_sympy",
    "verifiers.trainers": _TRAINING,
    "verifiers.trainers.grpo_config": "GRPOConfig",
    "verifiers.trainers.grpo_trainer": "GRPOTrainer",
    "verifiers.types": _TYPES,
    "verifiers.utils": "",
    "verifiers.utils.async_utils": """
        EventLoopLagMonitor EventLoopLagStats NullAsyncContext NullContext maybe_await maybe_retry maybe_semaphore
        with_sem
    """,
    "verifiers.utils.client_utils": """
        load_prime_config resolve_client_config resolve_client_configs setup_anthropic_client setup_client
        setup_http_client setup_openai_client
    """,
    "verifiers.utils.config_utils": "MissingKeyError ensure_keys",
    "verifiers.utils.data_utils": """
        BOXED_SYSTEM_PROMPT THINK_BOXED_SYSTEM_PROMPT extract_boxed_answer extract_hash_answer format_dataset
        get_preprocess_fn load_example_dataset strip_non_numeric
    """,
    "verifiers.utils.decorators": "cleanup stop teardown",
    "verifiers.utils.env_utils": "load_environment",
    "verifiers.utils.error_utils": "ErrorChain get_error_chain get_vf_error_chain",
    "verifiers.utils.eval_display": "EnvEvalState EvalDisplay EvalDisplayState",
    "verifiers.utils.eval_utils": """
        load_endpoints load_toml_config print_results quiet_datasets run_evaluation run_evaluations
        run_evaluations_tui
    """,
    "verifiers.utils.heartbeat": "Heartbeat",
    "verifiers.utils.import_utils": "load_toml",
    "verifiers.utils.install_utils": """
        check_hub_env_installed install_from_hub install_from_local install_from_repo is_hub_env is_installed
        normalize_package_name parse_env_id
    """,
    "verifiers.utils.logging_utils": f"{_LOGS} JsonFormatter LOGGER_NAME log_once print_time truncate warning_once",
    "verifiers.utils.message_utils": """
        cleanup_message cleanup_messages concat_messages format_messages from_raw_content_part
        from_raw_message maybe_normalize_messages
        message_to_printable messages_to_printable normalize_messages sanitize_tool_calls
        serialize_message_for_output serialize_messages_for_output strip_nones_from_content
    """,
    "verifiers.utils.metric_utils": """
        EnvMetrics ErrorRateMetric InputTokensMetric MeanMetric Metric OutputTokensMetric PassAtKMetric RewardMetric
    """,
    "verifiers.utils.model_utils": _MODELS,
    "verifiers.utils.path_utils": """
        find_latest_incomplete_eval_results_path get_eval_results_path get_eval_runs_dir get_results_path
        is_valid_eval_results_path write_temp_file
    """,
    "verifiers.utils.response_utils": """
        parse_is_truncated parse_response_message parse_response_messages parse_response_tokens
    """,
    "verifiers.utils.rlm_data_serialization_utils": "DataSerializer SerializedData build_custom_serializer",
    "verifiers.utils.save_utils": """
        GenerateOutputsBuilder is_json_serializable load_outputs make_dataset make_serializable
        push_results_to_hf_hub sanitize_metadata save_metadata save_new_outputs save_outputs state_to_output
        states_to_outputs
    """,
    "verifiers.utils.threaded_sandbox_client": "ThreadedAsyncSandboxClient",
    "verifiers.utils.token_utils": "get_prompt_ids prepare_sampling_args_for_token_prompts",
    "verifiers.utils.tools": "ask calculator python search search_ddg",
    "verifiers.utils.thread_utils": "Executor get_or_create_thread_attr get_or_create_thread_loop",
    "verifiers.utils.tool_utils": """
        VALID_TOOL_CONTENT_PART_TYPES convert_func_to_oai_tool convert_func_to_tool_def is_valid_tool_content_parts
    """,
    "verifiers.utils.tunnel_utils": "TunnelPool",
    "verifiers.utils.usage_utils": "StateUsageTracker extract_usage_tokens",
    "verifiers.utils.version_utils": "get_version_info get_vf_commit get_vf_version",
}
# A package that the classic releases brought along; only where it is not installed.
SERVICE = "prime_sandboxes"
_OLD[SERVICE] = _OLD[f"{SERVICE}.models"] = _OLD[f"{SERVICE}.exceptions"] = """
    APIError APITimeoutError AdvancedConfigs AsyncSandboxClient BackgroundJob BackgroundJobStatus CommandResponse
    CommandTimeoutError CreateSandboxRequest DownloadTimeoutError PaymentRequiredError SandboxFileNotFoundError
    SandboxImagePullError SandboxNotRunningError SandboxOOMError SandboxTimeoutError UnauthorizedError
    UploadTimeoutError
"""
OLD: dict[str, frozenset[str]] = {path: frozenset(names.split()) for path, names in _OLD.items()}
KNOWN = frozenset().union(*OLD.values(), HOMES)  # by any module at all
