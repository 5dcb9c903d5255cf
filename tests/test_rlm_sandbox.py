"""`RLMEnv` with its interpreter in a sandbox: the same rollouts, behind a wall."""

import asyncio
import shutil
from pathlib import Path

import pytest
from rlm_script import Models, answer, bash, code, looked_up, made, rolled
from waiting import steady

import verifiers as vf
from verifiers.envs.rlm_env import RLMEnv
from verifiers.sandbox import LocalBackend
from verifiers.sandbox.auto import AutoBackend


@pytest.fixture(scope="module")
def local():
    backend = LocalBackend(min_level=2)
    try:
        asyncio.run(backend.capabilities())
    except vf.SetupError as error:
        pytest.skip(f"no local sandbox here: {error}")
    yield backend
    asyncio.run(backend.close())


async def test_the_input_sub_models_and_tools_are_there_and_this_machine_is_not(local, tmp_path):
    (tmp_path / "secret").write_text("the secret")
    env = made("long. The code is 7361.", backend=local, root_tools=[looked_up])
    client = Models(
        [
            code("context[-5:], open('context.txt').read()[:4], sorted(open('.messages'))[0][:1]"),
            code("llm_batch(['a', 'b']), looked_up('x')"),
            code(f"open({str(tmp_path / 'secret')!r})"),
            answer("'7361'"),
        ],
        lambda request: "sub",
    )
    state, told = await rolled(env, client)
    assert told[:2] == ["Out[1]: ('7361.', 'long', '{')", "Out[2]: (['sub', 'sub'], '<x>')"]
    assert "FileNotFoundError" in told[2]
    assert (state["error"], state["final_answer"], state["rlm_fs_root_remote"]) == (None, "7361", "/work")
    assert not local._cells


@steady(0.2)
async def test_a_lost_interpreter_is_started_again_with_the_files_as_they_are(local):
    env = made("input", backend=local, code_execution_timeout=1)
    turns = [code("open('kept', 'w').write('!')\nimport os\nos._exit(1)"), code("open('kept').read(), context")]
    _, told = await rolled(env, Models([*turns, answer("''")]))
    assert "The interpreter was started again" in told[0] and told[1] == "Out[1]: ('!', 'input')"


async def test_a_shell_calls_its_tools_from_the_sandbox(local):
    env = made("a b c", backend=local, repl_language="bash", root_tools=[looked_up])
    turns = [bash("wc -w < context.txt; looked_up y"), bash("ANSWER_CONTENT=3; ANSWER_READY=1")]
    state, told = await rolled(env, Models(turns))
    assert told[0] == "3\n<y>" and state["final_answer"] == "3"


async def test_files_of_the_authors_go_in_and_the_codes_come_back(local):
    class Prepared(RLMEnv):
        async def setup_state(self, state, **kwargs):
            state = await super().setup_state(state, **kwargs)
            Path(state["rlm_fs_root"], "extra.txt").write_text("more")
            return state

    env = made(kind=Prepared, backend=local, retain_filesystem_after_rollout=True)
    turns = [code("open('made.txt', 'w').write(open('extra.txt').read() + '!')"), answer("''")]
    state, _ = await rolled(env, Models(turns))
    assert state["error"] is None
    assert Path(state["rlm_fs_root"], "made.txt").read_text() == "more!"
    shutil.rmtree(state["rlm_rollout_dir"])


async def test_an_image_without_an_engine_ends_the_run():
    env = made("x", backend=AutoBackend(engines=[]), sandbox_docker_image="ubuntu:24.04")
    with pytest.raises(vf.NoSandboxError, match="no container engine"):
        await env.evaluate(Models([answer("''")]), "root")


async def test_the_hooks_of_the_classic_class_shape_its_sandbox(local):
    class Prepared(RLMEnv):
        def get_sandbox_request(self, state):
            return super().get_sandbox_request(state).model_copy(update={"environment_vars": {"FROM": "the request"}})

        async def on_sandbox_ready(self, state, sandbox_id):
            await self.sandbox_client.upload_bytes(sandbox_id, "prepared.txt", b"by the author", "prepared.txt")

    look = code("import os\nopen('prepared.txt').read(), os.environ['FROM'], context")
    env = made("input", kind=Prepared, backend=local)
    state, told = await rolled(env, Models([look, answer("'1'")]))
    assert told[0] == "Out[1]: ('by the author', 'the request', 'input')"
    assert (state["error"], state["final_answer"]) == (None, "1")
    assert not local._cells


def test_a_class_with_these_hooks_gets_sandboxes_without_asking():
    class Prepared(RLMEnv):
        async def on_sandbox_ready(self, state, sandbox_id):
            pass

    assert made("input", kind=Prepared).sandbox_client is not None
    assert made("input").sandbox_client is None
