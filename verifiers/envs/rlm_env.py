"""`RLMEnv`: recursive language models. The long input stays in an interpreter; the model writes code that reads it.

the model → call_python_repl(code) → Interpreter ⇄ llm_batch(prompts) → the sub-model
                                                 ⇄ root tools
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from verifiers.attempt import Attempt
from verifiers.calls import AuthorCall, maybe_await, name_of
from verifiers.decorators import cleanup, stop, teardown
from verifiers.envs.interpreter import Execution, Interpreter, Settings
from verifiers.envs.rlm_monitor import RLMMonitorRubric, RunningCounts, tokens_of
from verifiers.envs.rlm_prompts import VERBOSITIES, scaffold, sub_prompt, with_scaffold
from verifiers.envs.rlm_sandbox import RLMSandboxes
from verifiers.envs.sandbox_request import CreateSandboxRequest
from verifiers.envs.sub_model_env import (
    RLMCodeExecutionTimeout,
    RLMSetupError,
    RLMWorkerError,
    RunningRollout,
    SubModelEnv,
    is_ending,
)
from verifiers.errors import (
    ConfigError,
    Error,
    NotHere,
    SandboxError,
    one_line,
)
from verifiers.rubrics.tool_rubric import calls_of
from verifiers.sandbox.sandbox import SandboxBackend
from verifiers.tools import tool_from
from verifiers.types import Message, State, TrajectoryStep

logger = logging.getLogger("verifiers")

# Keywords by the names of earlier releases.
_FORMER = {
    "max_iterations": "max_turns",
    "sub_tool_max_turns": "sub_llm_max_turns",
    "docker_image": "sandbox_docker_image",
    "cpu_cores": "sandbox_cpu_cores",
    "memory_gb": "sandbox_memory_gb",
    "disk_size_gb": "sandbox_disk_size_gb",
    "gpu_count": "sandbox_gpu_count",
    "timeout_minutes": "sandbox_timeout_minutes",
}
_SANDBOX_HOOKS = ("get_sandbox_request", "on_sandbox_ready")  # of a subclass that wants one


class RLMEnv(SubModelEnv):
    """The model sees a short prompt; the input lies in the working folder of an interpreter, to be read by code.

        env = vf.RLMEnv(
            dataset=[{"question": "What is the code?", "answer": "7361", "info": {"context": "a very long text"}}],
            rubric=vf.Rubric([lambda state, answer: float(state["final_answer"] == answer)]),
            repl_language="python",
        )

    `info["context"]` (a text, or values that JSON has) or `info["context_dir"]` (a folder, copied) is the input.
    `root_tools` are functions for the code, `sub_tools` are tools of the sub-models, `tools` are tools that the model
    calls itself. The answer is in `state["final_answer"]`, as text.
    """

    def __init__(
        self,
        max_turns: int = 50,
        tools: Sequence[Callable[..., Any]] | None = None,
        root_tools: Sequence[Callable[..., Any]] | None = None,
        sub_tools: Sequence[Callable[..., Any]] | None = None,
        sub_llm_max_turns: int = 5,
        sub_max_completion_tokens: int | None = None,
        root_max_completion_tokens: int | None = None,
        sub_model: str | None = None,
        sub_prompt_verbosity: Literal["light", "medium", "heavy"] = "light",
        root_prompt_verbosity: Literal["light", "medium", "heavy"] = "light",
        enable_sub_llms: bool = True,
        enable_summarization: bool = False,
        min_turns_in_context: int = 3,
        max_turns_in_context: int | None = None,
        max_output_length: int = 8192,
        max_sub_llm_parallelism: int = 5,
        system_prompt: str | None = None,
        repl_language: Literal["bash", "python"] = "bash",
        pip_install_packages: str = "",
        include_sub_llm_in_trajectory: bool = False,
        context_warning_threshold: float = 0.80,
        max_startup_wait_seconds: float = 120,
        code_execution_timeout: float = 120,
        abort_on_code_timeout: bool = False,
        retain_filesystem_after_rollout: bool = False,
        sandbox_cpu_cores: int = 1,
        sandbox_memory_gb: float = 2,
        sandbox_disk_size_gb: float = 5,
        sandbox_environment_vars: Mapping[str, str] | None = None,
        context_key: str = "context",
        context_dir_key: str = "context_dir",
        backend: SandboxBackend | str | None = None,
        sandbox_docker_image: str | None = None,
        **kwargs: Any,
    ) -> None:
        former = {_FORMER[name]: kwargs.pop(name) for name in list(kwargs) if name in _FORMER}
        image = self.sandbox_docker_image = former.pop("sandbox_docker_image", sandbox_docker_image)
        if backend is None and any(getattr(type(self), name) is not getattr(RLMEnv, name) for name in _SANDBOX_HOOKS):
            backend = "auto"
        if backend is None:
            _warn_of_no_sandbox(image, bool({**former, **kwargs}.get("sandbox_gpu_count")))
        self._refuse_what_is_not_here(repl_language, enable_summarization)
        for name, verbosity in (("sub", sub_prompt_verbosity), ("root", root_prompt_verbosity)):
            if verbosity not in VERBOSITIES:
                raise ConfigError(f"{name}_prompt_verbosity is one of {', '.join(VERBOSITIES)}, got {verbosity!r}")
        self.repl_language: Literal["bash", "python"] = repl_language
        self.sub_model = sub_model
        self.sub_llm_max_turns = former.pop("sub_llm_max_turns", sub_llm_max_turns)
        self.sub_max_completion_tokens = sub_max_completion_tokens
        self.root_max_completion_tokens = root_max_completion_tokens
        self.sub_prompt_verbosity, self.root_prompt_verbosity = sub_prompt_verbosity, root_prompt_verbosity
        self.enable_sub_llms = enable_sub_llms
        self.enable_summarization, self.min_turns_in_context = enable_summarization, min_turns_in_context
        self.max_turns_in_context = max_turns_in_context
        self.max_output_length = max_output_length
        self.max_sub_llm_parallelism = max_sub_llm_parallelism
        self.custom_system_prompt = system_prompt
        self.pip_install_packages = pip_install_packages
        self.include_sub_llm_in_trajectory = include_sub_llm_in_trajectory
        self.context_warning_threshold = context_warning_threshold
        self.max_startup_wait_seconds = max_startup_wait_seconds
        self.code_execution_timeout = code_execution_timeout
        self.sub_llm_timeout = max(1, code_execution_timeout - 5)
        self.abort_on_code_timeout = abort_on_code_timeout
        self.retain_filesystem_after_rollout = retain_filesystem_after_rollout
        self.sandbox_cpu_cores = former.pop("sandbox_cpu_cores", sandbox_cpu_cores)
        self.sandbox_memory_gb = former.pop("sandbox_memory_gb", sandbox_memory_gb)
        self.sandbox_disk_size_gb = former.pop("sandbox_disk_size_gb", sandbox_disk_size_gb)
        self.sandbox_environment_vars = dict(sandbox_environment_vars or {})
        self.context_key, self.context_dir_key = context_key, context_dir_key
        minutes = {**former, **kwargs}.get("sandbox_timeout_minutes", 60)
        self._sandboxes = None if backend is None else self._sandboxes_of(backend, minutes)
        self.sandbox_client: Any = None if self._sandboxes is None else self._sandboxes.client

        self.standard_tools = list(tools or ())
        self.root_tools = [*self._build_fixed_root_tools(), *(root_tools or ())]
        self.sub_tools = list(sub_tools or ())
        self.root_tool_map = _by_name(self.root_tools, "root_tools")
        self.sub_tool_map = _by_name(self.sub_tools, "sub_tools")
        self.root_tool_defs = [tool_from(tool) for tool in self.root_tools]
        self.sub_tool_defs = [tool_from(tool) for tool in self.sub_tools]
        self.root_tool_names, self.sub_tool_names = list(self.root_tool_map), list(self.sub_tool_map)
        self._root_calls = {name: AuthorCall(tool, name) for name, tool in self.root_tool_map.items()}
        # the rollout that a root tool is called for: client, model, sub_model, state, parent_turn
        self._root_tool_context_var: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
            "rlm_root_tool_context", default=None
        )
        self._rollouts: dict[str, RunningRollout] = {}  # by state["rollout_id"]

        super().__init__(tools=tools, max_turns=former.pop("max_turns", max_turns), **former, **kwargs)
        self.add_rubric(RLMMonitorRubric(self.root_tool_names))
        self.add_tool(self.call_bash_repl if repl_language == "bash" else self.call_python_repl, args_to_skip=["state"])

    def _sandboxes_of(self, backend: SandboxBackend | str, minutes: float) -> RLMSandboxes:
        request = CreateSandboxRequest(
            name="rlm", docker_image=self.sandbox_docker_image, cpu_cores=self.sandbox_cpu_cores,
            memory_gb=self.sandbox_memory_gb, disk_size_gb=self.sandbox_disk_size_gb, timeout_minutes=minutes,
        )  # fmt: skip
        return RLMSandboxes(backend, request, [one for one in self.pip_install_packages.split() if _is_installed(one)])

    def _refuse_what_is_not_here(self, repl_language: str, enable_summarization: bool) -> None:
        if repl_language not in ("bash", "python"):
            raise ConfigError(f"repl_language is 'bash' or 'python', got {repl_language!r}")
        if enable_summarization:
            raise NotHere("RLMEnv cannot drop turns from the context: leave enable_summarization out, and bound the "
                          "turns by max_turns_in_context")  # fmt: skip
        if hasattr(type(self), "customize_worker_script"):
            raise NotHere(
                f"{type(self).__name__}.customize_worker_script rewrites the program that runs the code, and that "
                "is another one here. Prepare files in on_sandbox_ready or setup_state (state['rlm_fs_root'] is its "
                "folder), and names by `await self._execute_code(code, state)`"
            )

    # ---- a rollout's beginning and end ----

    async def setup_state(self, state: State, **kwargs: Any) -> State:
        await super().setup_state(state)
        if self._sandboxes is None or await self._sandboxes.is_local():
            self._check_packages()
        rollout_id = state["rollout_id"] = f"rlm_{token_hex(6)}"
        folder = Path(tempfile.mkdtemp(prefix=f"{rollout_id}_"))
        root, control = folder / "rlm_fs", folder / "rlm_control"
        root.mkdir()
        control.mkdir()
        state["rlm_rollout_dir"] = str(folder)
        # where the interpreter runs here, what would be the path in a sandbox is the same one
        state["rlm_fs_root"] = state["rlm_fs_root_remote"] = str(root)
        state["rlm_control_dir"] = state["rlm_control_dir_remote"] = str(control)
        state["retain_filesystem_after_rollout"] = self.retain_filesystem_after_rollout
        data, context = await asyncio.to_thread(self._lay_out, state, root, control)
        settings = Settings(
            folder=root,
            control_folder=control,
            language=self.repl_language,
            tools=tuple(self.root_tool_map),
            context=context,
            variables={**self.sandbox_environment_vars, **self._build_worker_env_vars(state)},
            memory_bytes=int(self.sandbox_memory_gb * 2**30),
            file_bytes=int(self.sandbox_disk_size_gb * 2**30),
            threads=max(1, int(self.sandbox_cpu_cores)),
            start_s=self.max_startup_wait_seconds,
        )
        places = asyncio.Semaphore(max(1, self.max_sub_llm_parallelism))
        if self._sandboxes is None:
            made = Interpreter(settings)
        else:
            request = await maybe_await(self.get_sandbox_request, state)
            made = await self._sandboxes.interpreter(state, settings, request)
            await maybe_await(self.on_sandbox_ready, state, state["sandbox_id"])
        rollout = self._rollouts[rollout_id] = RunningRollout(made, RunningCounts(state), places)
        state["rlm_fs_has_data"] = bool(data)
        state["rlm_system_prompt"] = scaffold(self, data)
        state["rlm_root_tools"], state["rlm_sub_tools"] = list(self.root_tool_map), list(self.sub_tool_map)
        if self._sandboxes is None:  # else with the first code: until then authors may add to the folder here
            await self._start(rollout)
        state["rlm_worker_ready"] = True
        state["context_warning_sent"] = False
        return state

    def get_sandbox_request(self, state: State) -> Any:
        """What is asked for in this rollout; for authors. A class that has its own gets sandboxes: `backend="auto"`."""
        return None if self._sandboxes is None else self._sandboxes.request.model_copy()

    async def on_sandbox_ready(self, state: State, sandbox_id: str) -> None:
        """For authors: what is to be done in a sandbox that has just been made, before any code runs there."""

    def _build_worker_env_vars(self, state: State) -> dict[str, str]:
        """Environment variables of the interpreter; for authors to add to."""
        return {}

    def _lay_out(self, state: State, root: Path, control: Path) -> tuple[str, Path | None]:
        """Puts the row's data into the working folder. What is told of it, and the file of the variable `context`."""
        info = state.get("info")
        info = info if isinstance(info, dict) else {}
        source, value = info.get(self.context_dir_key), info.get(self.context_key)
        state["rlm_fs_source"] = None if source is None else str(source)
        if source:
            count, size = _copy_folder(Path(str(source)), root, int(self.sandbox_disk_size_gb * 2**30))
            return f"The data of this task: {count:,} files, {size:,} bytes, in the working folder.", None
        if value is None:
            return "", None
        is_text = isinstance(value, str)
        try:
            text = value if is_text else json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"info[{self.context_key!r}] must be a text or values that JSON has: {error}; for anything else write "
                f"files, and name their folder in info[{self.context_dir_key!r}]"
            ) from error
        name = "context.txt" if is_text else "context.json"
        for folder in (root, control):  # the code may change the one in its folder
            (folder / name).write_text(text, "utf-8", "replace", newline="")
        also = ", and in the variable `context`" if self.repl_language == "python" else ""
        return (
            f"The data of this task: `{name}` in the working folder ({len(text):,} characters){also}.",
            control / name,
        )

    def _check_packages(self) -> None:
        missing = [item for item in self.pip_install_packages.split() if not _is_installed(item)]
        if missing:
            names = " ".join(missing)
            raise RLMSetupError(
                f"pip_install_packages asks for {names}, which this Python has not, and the interpreter uses what is "
                f"installed here. Try: uv pip install {names}"
            )

    async def _start(self, rollout: RunningRollout) -> None:
        try:
            await rollout.interpreter.start()
        except SandboxError as error:
            raise RLMWorkerError(str(error)) from error

    async def post_rollout(self, state: State) -> None:
        await self._ensure_final_answer(state)

    async def _ensure_final_answer(self, state: State) -> None:
        """Without one that was marked as final, the answer is the last that was written."""
        if "final_answer" not in state:
            rollout = self._rollouts.get(state.get("rollout_id", ""))
            state["final_answer"] = rollout.answer if rollout is not None else ""

    @cleanup(priority=-100)
    async def cleanup_rlm_state(self, state: State) -> None:
        rollout = self._rollouts.pop(state.get("rollout_id", ""), None)
        if rollout is not None:
            await rollout.interpreter.close()
        folder, is_kept = state.get("rlm_rollout_dir"), state.get("retain_filesystem_after_rollout")
        if self._sandboxes is not None:
            await self._sandboxes.end(state, Path(state["rlm_fs_root"]) if folder and is_kept else None)
        if folder and not is_kept:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    @teardown
    async def teardown_sandboxes(self) -> None:
        if self._sandboxes is not None:
            await self._sandboxes.client.aclose()

    # ---- the conversation of the root model ----

    async def get_prompt_messages(self, state: State) -> list[Message]:
        attempt: Attempt = state.attempt
        if attempt.conversation is not None or state.get("rlm_system_prompt") is None:
            return await super().get_prompt_messages(state)
        state["raw_prompt"] = state["prompt"]
        state["prompt"] = with_scaffold(state["prompt"], state["rlm_system_prompt"])
        conversation = await super().get_prompt_messages(state)
        attempt.prompt, attempt.prompt_kept = conversation[:], len(conversation)
        return conversation

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> list[Message]:
        answers = await super().env_response(messages, state, **kwargs)
        is_spent = (
            self.root_max_completion_tokens is not None
            and state["root_llm_completion_tokens"] >= self.root_max_completion_tokens
        )
        if self.max_turns_in_context is not None and self._main_turn_count(state) >= self.max_turns_in_context:
            is_spent = state["max_turns_in_context_stopped"] = True
        if is_spent:
            await self._ensure_final_answer(state)
        if "final_answer" in state:
            state["final_env_response"] = answers
        return answers

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        rollout = self._rollouts.get(state.get("rollout_id", ""))
        if rollout is not None:
            rollout.counts.step(trajectory_step)
        await super().add_trajectory_step(state, trajectory_step)

    def _main_turn_count(self, state: State) -> int:
        return sum(step.get("trajectory_id") == state["trajectory_id"] for step in state["trajectory"])

    def _last_main_trajectory_step(self, state: State) -> TrajectoryStep | None:
        steps = reversed(state["trajectory"])
        return next((step for step in steps if step.get("trajectory_id") == state["trajectory_id"]), None)

    @stop
    async def answer_ready(self, state: State, **kwargs: Any) -> bool:
        return "final_answer" in state

    @stop
    async def max_turns_reached(self, state: State, **kwargs: Any) -> bool:
        return 0 < self.max_turns <= self._main_turn_count(state)

    @stop
    async def no_tools_called(self, state: State, **kwargs: Any) -> bool:
        last = self._last_main_trajectory_step(state)
        return last is not None and not calls_of(last["completion"])

    # ---- the interpreter as a tool ----

    async def call_python_repl(self, code: str, state: Any) -> str:
        """Run Python code. Variables stay from call to call.

        Args:
            code: The code to run.
        """
        return await self._call_repl(code, state, ready_instruction="Set answer['ready'] = True soon.")

    async def call_bash_repl(self, code: str, state: Any) -> str:
        """Run commands in bash. Variables and the working folder stay from call to call.

        Args:
            code: The commands to run.
        """
        return await self._call_repl(code, state, ready_instruction="Set ANSWER_READY=1 soon.")

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        return {**tool_args, "state": state} if tool_name in ("call_python_repl", "call_bash_repl") else tool_args

    async def _call_repl(self, code: str, state: Any, *, ready_instruction: str, **_: Any) -> str:
        rollout = self._rollout(state)
        await self._upload_message_history(state)
        began = time.perf_counter()
        result = await self._execute_code(code, state)
        rollout.counts.execution(time.perf_counter() - began)
        answer = result.get("answer") or {}
        if answer.get("ready"):
            state["final_answer"] = answer.get("content", "")
        return self._maybe_add_context_warning(
            self._format_execution_output(result), state, ready_instruction=ready_instruction
        )

    async def _execute_code(self, code: str, state: State) -> dict[str, Any]:
        """Runs code in the rollout's interpreter.

        Returns `status` ("ok" or "error"), `stdout`, `stderr`, `result`, `execution_count` and `answer`.
        """
        rollout = self._rollout(state)
        if not rollout.interpreter.is_alive:
            await self._start(rollout)
        execution = await rollout.interpreter.run(str(code), self.code_execution_timeout, partial(self._serve, state))
        if execution.content is not None:
            rollout.answer = execution.content
        result = execution.result
        if execution.status == "timeout":
            text = f"stopped: it took longer than {self.code_execution_timeout:g} s"
            if self.abort_on_code_timeout:
                raise RLMCodeExecutionTimeout(f"the code was {text}")
            result = await self._after_loss(execution, text, state)
        elif execution.status == "died":
            result = await self._after_loss(execution, "the interpreter died (a crash, or too much memory)", state)
        return {
            "status": "ok" if execution.status == "ok" else "error",
            "stdout": execution.stdout,
            "stderr": execution.stderr,
            "result": result,
            "execution_count": execution.number,
            "answer": {"ready": execution.is_ready, "content": rollout.answer},
        }

    async def _after_loss(self, execution: Execution, text: str, state: State) -> str:
        if not execution.is_lost:
            return f"{text}. Variables are kept; try smaller steps."
        if not await self._recover_from_code_timeout(state):
            raise RLMWorkerError(f"{text}, and the interpreter could not be started again")
        return f"{text}. The interpreter was started again: variables are gone, files are kept. Try smaller steps."

    async def _recover_from_code_timeout(self, state: State) -> bool:
        """Starts the interpreter again after it was lost."""
        await self._start(self._rollout(state))
        return True

    def _format_execution_output(self, result: Mapping[str, Any]) -> str:
        """What the model sees of an execution, cut to `max_output_length` characters."""
        stdout, stderr, said = (str(result.get(key) or "").rstrip() for key in ("stdout", "stderr", "result"))
        if self.repl_language == "bash":
            parts = [stdout, stderr, said and f"({said})"]
        elif result.get("status") == "ok":
            parts = [stdout, stderr and f"stderr:\n{stderr}", said and f"Out[{result.get('execution_count')}]: {said}"]
        else:
            parts = [stdout, stderr and f"stderr:\n{stderr}", said]
        output = "\n".join(part for part in parts if part) or "(no output)"
        if len(output) <= self.max_output_length:
            return output
        more = len(output) - self.max_output_length
        return f"{output[: self.max_output_length]}\n… ({more:,} more characters: print less, or keep it in variables)"

    def _maybe_add_context_warning(self, output: str, state: State, *, ready_instruction: str) -> str:
        last = self._last_main_trajectory_step(state)
        if not self.max_seq_len or state.get("context_warning_sent") or last is None:
            return output
        used = sum(tokens_of(last.get("response")))
        if used < self.context_warning_threshold * self.max_seq_len:
            return output
        state["context_warning_sent"] = True
        return f"{output}\n\nThe context is nearly full: {used:,} of {self.max_seq_len:,} tokens. {ready_instruction}"

    async def _upload_message_history(self, state: State) -> None:
        """Writes the conversation so far to `.messages` in the working folder."""
        attempt: Attempt | None = state.attempt
        messages = (attempt.conversation if attempt is not None else None) or []
        lines = "".join(json.dumps(message, default=str) + "\n" for message in messages)
        if self._sandboxes is not None and self._rollout(state).interpreter.is_alive:
            with contextlib.suppress(OSError):
                await self._sandboxes.put(state, ".messages", lines)
            return
        try:
            (Path(state["rlm_fs_root"]) / ".messages").write_text(lines, "utf-8")
        except OSError:  # the code has put something else there, or taken its folder away
            pass

    def _failed(self, error: Exception, call_id: str, kind: type[Error]) -> Message:
        if is_ending(error):
            raise error
        return super()._failed(error, call_id, kind)

    # ---- what the code calls ----

    async def _serve(self, state: State, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """One call of a root tool. What it raises of the kinds that end a rollout is raised."""
        call = self._root_calls.get(name)
        if call is None:
            return {"error": f"there is no tool '{name}'; the tools are: {', '.join(self._root_calls)}"}
        self._root_tool_context_var.set(  # of the task that this call is
            {
                "client": state["client"],
                "model": state["model"],
                "sub_model": self.sub_model or state["model"],
                "state": state,
                "parent_turn": self._main_turn_count(state),
                "rollout_id": state["rollout_id"],
            }
        )
        began = time.perf_counter()
        try:
            return {"value": await call.invoke(tuple(args), kwargs)}
        except Exception as error:
            if self._is_ending(error):
                raise
            return {"error": one_line(error, 2000)}
        finally:
            self._rollout(state).counts.tool(name, time.perf_counter() - began)

    def _build_fixed_root_tools(self) -> list[Callable[..., Any]]:
        """The functions that the code has whatever the author adds."""
        if not self.enable_sub_llms:
            return []

        async def llm_batch(prompts: list[str]) -> list[str]:
            """Asks a fresh language model each of the prompts, at the same time."""
            context = self._root_tool_context_var.get()
            if context is None:
                raise RuntimeError("llm_batch can only be called by code in the interpreter")
            return await self._root_llm_batch(context, prompts)

        return [llm_batch]

    def sub_prompt(self) -> str:
        return sub_prompt(self)


def _warn_of_no_sandbox(image: str | None, wants_gpu: bool) -> None:
    if str(image or "python").partition(":")[0] != "python" or wants_gpu:
        logger.warning(
            "RLMEnv runs its interpreter on this machine, not in the image %s; what it lacks is missing. "
            "backend='auto' puts it into a sandbox",
            image,
        )


def _by_name(tools: Sequence[Callable[..., Any]], where: str) -> dict[str, Callable[..., Any]]:
    named: dict[str, Callable[..., Any]] = {}
    for tool in tools:
        name = name_of(tool)
        if not name.isidentifier():
            raise ConfigError(f"{where}: '{name}' is no name that code can call; define the tool with `def`")
        if named.get(name, tool) is not tool:
            raise ConfigError(f"{where}: there is a tool '{name}' already; give one of the two another name")
        named[name] = tool
    return named


def _copy_folder(source: Path, target: Path, limit: int) -> tuple[int, int]:
    """Copies files and folders; how many files, and their bytes."""
    if not source.is_dir() or source.is_symlink():
        raise ConfigError(f"the folder of the context must be one, and no link: {source}")
    count = size = 0
    for path in source.rglob("*"):
        if path.is_symlink():
            raise ConfigError(f"the folder of the context holds a link, which could lead anywhere: {path}")
        if path.is_file():
            count, size = count + 1, size + path.stat().st_size
    if size > limit:
        raise ConfigError(f"the folder of the context has {size:,} bytes; sandbox_disk_size_gb allows {limit:,}")
    shutil.copytree(source, target, dirs_exist_ok=True)
    return count, size


def _is_installed(requirement: str) -> bool:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    try:
        return name is None or distribution(name[0]) is not None
    except PackageNotFoundError:
        return False
