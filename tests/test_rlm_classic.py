"""Environments written for `RLMEnv` of classic releases run as they are: keywords, hooks, context variables, files."""

import contextvars
import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from rlm_script import Models, answer, bash, call, code, exact, looked_up, made, rolled

import verifiers as vf
from verifiers.envs.rlm_env import RLMEnv
from verifiers.envs.rlm_monitor import RLMMonitorRubric
from verifiers.envs.sub_model_env import RLMWorkerError

CLASSIC = {
    "max_turns": 30, "tools": None, "root_tools": None, "sub_tools": None, "sub_llm_max_turns": 5,
    "sub_max_completion_tokens": None, "root_max_completion_tokens": None, "sub_model": None,
    "sub_prompt_verbosity": "light", "root_prompt_verbosity": "heavy", "enable_sub_llms": True,
    "enable_summarization": False, "min_turns_in_context": 3, "max_turns_in_context": None, "max_output_length": 8192,
    "max_sub_llm_parallelism": 5, "system_prompt": None, "repl_language": "bash", "pip_install_packages": "",
    "include_sub_llm_in_trajectory": False, "context_warning_threshold": 0.8, "max_startup_wait_seconds": 120,
    "code_execution_timeout": 120, "abort_on_code_timeout": False, "retain_filesystem_after_rollout": False,
    "sandbox_docker_image": "python:3.11-slim", "sandbox_cpu_cores": 1, "sandbox_memory_gb": 2,
    "sandbox_disk_size_gb": 5, "sandbox_gpu_count": 0, "sandbox_timeout_minutes": 60, "sandbox_environment_vars": None,
    "sandbox_labels": ["a"], "sandbox_client_max_workers": 50, "sandbox_client_max_connections": 100,
    "sandbox_client_max_keepalive_connections": 50, "sandbox_transfer_max_retries": 3, "env_id": "x",
}  # fmt: skip


async def test_every_keyword_of_the_classic_constructor_is_taken():
    env = made(**CLASSIC)
    assert env.max_turns == 30 and env.repl_language == "bash"
    assert any(isinstance(rubric, RLMMonitorRubric) for rubric in env.rubric.rubrics)
    state, _ = await rolled(env, Models([bash("ANSWER_CONTENT=1 ANSWER_READY=1")]))
    assert state["final_answer"] == "1"


def test_the_old_import_path_has_the_classes_of_today():
    old = importlib.import_module("verifiers.envs.experimental.rlm_env")
    assert old.RLMEnv is vf.RLMEnv is RLMEnv
    assert old.RLMMonitorRubric is RLMMonitorRubric
    assert issubclass(old.RLMWorkerRecoveryError, vf.SandboxError)
    assert issubclass(old.RLMCodeExecutionTimeout, vf.ToolCallError)


def test_keywords_of_earlier_releases_mean_what_they_meant():
    env = made(max_iterations=7, sub_tool_max_turns=2, memory_gb=1, context_key="data", docker_image="python:3.11-slim")
    assert (env.max_turns, env.sub_llm_max_turns, env.sandbox_memory_gb, env.context_key) == (7, 2, 1, "data")


async def test_a_classic_subclass_with_tools_that_find_their_rollout():
    """Tools read the state through context variables, files come from a folder made in setup_state and are kept."""

    class Secrets(RLMEnv):
        def __init__(self, **kwargs):
            self._sub_state = contextvars.ContextVar("sub_state", default=None)
            env = self

            async def unlock(name: str, key: str) -> str:
                """Opens a file by its key."""
                context = env._root_tool_context_var.get()
                secrets = context["state"]["secrets"]
                return "opened" if secrets.get(name) == key else "wrong key"

            def key_of(name: str) -> str:
                """The key of a file."""
                return env._sub_state.get()["secrets"][name]

            super().__init__(
                root_tools=[unlock],
                sub_tools=[key_of],
                retain_filesystem_after_rollout=True,
                max_iterations=9,
                **kwargs,
            )

        async def _run_sub_llm(self, state, client, model, messages):
            token = self._sub_state.set(state)
            try:
                return await super()._run_sub_llm(state, client, model, messages)
            finally:
                self._sub_state.reset(token)

        async def setup_state(self, state, **kwargs):
            folder = tempfile.mkdtemp()
            Path(folder, "a.txt").write_text("x")
            state["secrets"] = {"a.txt": "k1"}
            state["info"] = {**dict(state["info"]), "context_dir": folder}
            try:
                return await super().setup_state(state, **kwargs)
            finally:
                shutil.rmtree(folder)

    def files_left(state):
        return float(os.listdir(state["rlm_fs_root"]) == [".messages"])

    def reply(request):
        last = request.messages[-1]
        return last.content if last.role == "tool" else {"tool_calls": [call({"name": "a.txt"}, "key_of")]}

    turns = [
        bash("ls; key=$(llm_batch 'Which key has a.txt?' | tr -d '[]\"'); unlock a.txt $key"),
        bash("rm a.txt; export RLM_CONTENT=7361 RLM_READY=1"),
    ]
    env = made(kind=Secrets, repl_language="bash", rubric=vf.Rubric([exact, files_left]))
    results = await env.evaluate(Models(turns, reply), "root", state_columns=["rlm_rollout_dir"])
    (record,) = results.records
    assert [m["content"] for m in record.messages if m["role"] == "tool"] == ["a.txt\nopened", "(no output)"]
    assert record.reward == 2.0
    assert env.max_turns == 9
    shutil.rmtree(record.state_columns["rlm_rollout_dir"])


async def test_a_classic_subclass_that_plays_a_game_inside_the_interpreter():
    class Game(RLMEnv):
        async def setup_state(self, state, **kwargs):
            state = await super().setup_state(state, **kwargs)
            result = await self._execute_code(f"secret = {state['answer']!r}\ntries = 0\nprint('ready')", state)
            if result.get("status") == "error":
                raise vf.SandboxError(result.get("result"))
            state["greeting"] = result["stdout"].strip()
            return state

        async def call_python_repl(self, code: str, state) -> str:
            output = await super().call_python_repl(code, state)
            result = await self._execute_code("import json\nprint(json.dumps({'tries': tries}))", state)
            state["tries"] = json.loads(result["stdout"])["tries"]
            return f"{output}\n[tries: {state['tries']}]"

        @vf.stop
        async def out_of_tries(self, state):
            return state.get("tries", 0) >= 2

    state, outputs = await rolled(made(kind=Game), Models([code("tries += 1"), code("tries += 1; secret"), code("1")]))
    assert state["greeting"] == "ready"
    assert outputs == ["(no output)\n[tries: 1]", "Out[4]: '7361'\n[tries: 2]"]
    assert state["stop_condition"] == "out_of_tries"


async def test_a_classic_subclass_that_sends_a_wrong_answer_back():
    class Judged(RLMEnv):
        async def env_response(self, messages, state, **kwargs):
            answers = await super().env_response(messages, state, **kwargs)
            if "final_answer" not in state or state["final_answer"] == state["answer"]:
                return answers
            state.pop("final_answer")
            state["final_env_response"] = None
            last = answers[-1]
            return [*answers[:-1], last.model_copy(update={"content": last.content + "\nWrong, try again."})]

    turns = [answer("'1'"), code("'thinking'"), answer("'7361'")]
    state, outputs = await rolled(made(kind=Judged), Models(turns))
    assert outputs == ["(no output)\nWrong, try again.", "Out[2]: 'thinking'", "(no output)"]
    assert state["final_answer"] == "7361"


async def test_a_classic_subclass_that_recurses_and_shapes_its_sub_requests():
    class Recursive(RLMEnv):
        def __init__(self, **kwargs):
            super().__init__(root_tools=[self.rlm_query], include_sub_llm_in_trajectory=True, **kwargs)

        async def _call_sub_llm_api(self, state, client, model, messages, tools=None):
            changed = {**dict(state), "sampling_args": {**dict(state["sampling_args"]), "max_tokens": 9}}
            return await super()._call_sub_llm_api(changed, client, model, messages, tools)

        async def rlm_query(self, prompt: str) -> str:
            """Asks another copy."""
            context = self._root_tool_context_var.get()
            reply = await self._run_sub_llm_request(
                state_ref=context["state"], client=context["client"], sub_model=context["sub_model"],
                messages=[vf.UserMessage(content=prompt)], batch_id="b1", request_id="r1",
                parent_turn=context["parent_turn"],
            )  # fmt: skip
            return reply["choices"][0]["message"]["content"]

        async def add_trajectory_step(self, state, trajectory_step):
            await super().add_trajectory_step(state, trajectory_step)
            state.setdefault("kinds", []).append(bool(trajectory_step["extras"].get("is_sub_llm_call")))

    client = Models([answer("rlm_query('deeper')")], lambda request: "found")
    state, _ = await rolled(made(kind=Recursive), client)
    assert state["final_answer"] == "found"
    assert state["kinds"] == [False, True]
    assert client.sub_requests[0].sampling["max_tokens"] == 9


def test_what_there_is_none_of_is_refused_when_it_is_made():
    class Rewrites(RLMEnv):
        def customize_worker_script(self, script, state):
            return script

    with pytest.raises(vf.NotHere, match="customize_worker_script rewrites the program"):
        made(kind=Rewrites)
    with pytest.raises(vf.NotHere, match="enable_summarization"):
        made(enable_summarization=True)


def named_the_same(x: int) -> int:
    """Another."""
    return x


named_the_same.__name__ = "looked_up"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"repl_language": "ruby"}, "'bash' or 'python'"),
        ({"root_prompt_verbosity": "loud"}, "light, medium, heavy"),
        ({"root_tools": [lambda x: x]}, "no name that code can call"),
        ({"sub_tools": [looked_up, named_the_same]}, "there is a tool 'looked_up' already"),
    ],
)
def test_bad_arguments_are_refused(options, says):
    with pytest.raises(vf.ConfigError, match=says):
        made(**options)


async def test_without_super_setup_state_the_rollout_fails_and_says_why():
    class Forgot(RLMEnv):
        async def setup_state(self, state, **kwargs):
            return state

    state, _ = await rolled(made(kind=Forgot), Models([code("1")]))
    assert isinstance(state["error"], RLMWorkerError)
    assert "super().setup_state" in str(state["error"])
