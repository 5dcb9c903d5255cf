"""`SandboxEnv`, `PythonEnv`, `BashEnv`: what the model is told, what authors may do, and what becomes of failures."""

import asyncio
import importlib.util
import json
import logging
import time

import pytest
from waiting import steady, until

import verifiers as vf
from verifiers.clients import ScriptedClient
from verifiers.envs.sandbox_client import CommandTimeoutError, SandboxClient
from verifiers.envs.sandbox_env import CreateSandboxRequest
from verifiers.sandbox import LocalBackend, ScriptedSandboxes
from verifiers.sandbox.auto import AutoBackend
from verifiers.sandbox.sandbox import ExecResult

ROWS = [{"question": "?", "answer": "6"}]


@pytest.fixture(scope="module")
def local():
    """One backend for all: its warm process serves any event loop."""
    backend = LocalBackend(packages=True, min_level=2)
    try:
        asyncio.run(backend.capabilities())
    except vf.SetupError as error:
        pytest.skip(f"no local sandbox here: {error}")
    yield backend
    asyncio.run(backend.close())


def call(tool, **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


async def rolled(env, *turns, row=None):
    """The state, and what the tools answered."""
    script = [*turns, "done"]
    state = await env.rollout(row or env.train_rows()[0], ScriptedClient(script), "m")
    return state, [message["content"] for message in state["completion"] if message["role"] == "tool"]


def bash(*commands):
    return [call("bash", command=command) for command in commands]


def python(*pieces):
    return [call("python", code=code) for code in pieces]


def scripted(scripts="ok\n"):
    """Sandboxes in memory; commands come to the script as `bash` would get them."""
    return ScriptedSandboxes(scripts if isinstance(scripts, dict) else {"*": scripts})


# Commands


async def test_files_stay_from_command_to_command_and_end_with_the_rollout(local):
    env = vf.SandboxEnv(dataset=ROWS, backend=local)
    state, told = await rolled(env, *bash("echo 4 > kept; pwd", "cat kept; echo careful >&2", "true", "test -d gone"))
    assert state["error"] is None
    assert told == ["/work", "4\nstderr:\ncareful", "(no output)", "(no output)"]
    assert not env.active_sandboxes
    with pytest.raises(vf.SandboxError, match="deleted already"):
        await env.sandbox_client.execute_command(state["sandbox_id"], "true")
    _, told = await rolled(env, *bash("ls"))
    assert told == ["(no output)"], "another rollout has a sandbox of its own"


@steady(0.3)
async def test_a_command_at_its_time_limit_is_told_to_the_model_with_what_it_wrote_and_the_sandbox_lives_on(local):
    env = vf.SandboxEnv(dataset=ROWS, backend=local, timeout_per_command_seconds=1.5)
    state, told = await rolled(env, *bash("echo begun; sleep 30", "echo on"))
    assert told == ["Error: the command timed out after 1.5 s and was ended. Until then:\nbegun", "on"]
    assert state["error"] is None


async def test_a_command_that_hits_another_limit_says_which(local):
    env = vf.SandboxEnv(dataset=ROWS, backend=local, memory_gb=0.1)
    _, told = await rolled(env, *bash("python3 -c 'x = bytearray(500 << 20)'", "yes"))
    assert "out of memory" in told[0] or "MemoryError" in told[0]
    assert told[1].endswith("(ended: it wrote too much)")
    assert len(told[1]) < env.max_output_length + 100


async def test_long_output_keeps_its_ends(local):
    env = vf.SandboxEnv(dataset=ROWS, backend=local, max_output_length=100)
    _, told = await rolled(env, *bash("seq 1 1000"))
    assert told[0].startswith("1\n2\n") and told[0].endswith("999\n1000") and "characters left out" in told[0]
    state = await env.setup_state(await env.init_state(env.train_rows()[0], None, "m"))
    whole = await env.bash("seq 1 1000", state["sandbox_id"], state["sandbox_state"])
    assert len(whole.split()) == 1000, "an author who calls the tool gets all of it"
    await env.destroy_sandbox(state)


async def test_nothing_of_the_callers_environment_is_there_but_what_was_asked_for(local, monkeypatch):
    monkeypatch.setenv("VF_TEST_SECRET", "hidden")
    env = vf.SandboxEnv(dataset=ROWS, backend=local, environment_vars={"GIVEN": "shown"})
    _, told = await rolled(env, *bash("echo $GIVEN-$VF_TEST_SECRET"))
    assert told == ["shown-"]


async def test_the_start_command_goes_on_beside_the_model(local):
    env = vf.SandboxEnv(dataset=ROWS, backend=local, start_command="sh -c 'echo up > /work/flag; sleep 250'")
    _, told = await rolled(env, *bash("for i in $(seq 250); do [ -f flag ] && break; sleep 0.1; done; cat flag"))
    assert told == ["up"]


# The rollout and its sandbox


async def test_the_first_model_call_does_not_wait_for_the_sandbox():
    made_at, asked_at = [], []

    class Slow(ScriptedSandboxes):
        async def create(self, spec=None):
            await until(lambda: asked_at)
            await asyncio.sleep(0.1)
            made_at.append(time.monotonic())
            return await super().create(spec)

    class Env(vf.SandboxEnv):
        async def get_model_response(self, state, prompt, **kwargs):
            asked_at.append(time.monotonic())
            return await super().get_model_response(state, prompt, **kwargs)

    env = Env(dataset=ROWS, backend=Slow({"*": "ok"}))
    state, told = await rolled(env, *bash("x"))
    assert told == ["ok"] and asked_at[0] < made_at[0]
    assert state["sandbox_state"]["ready_wait_time"] > 0.05


async def test_what_classic_authors_read_is_there():
    env = vf.SandboxEnv(
        dataset=ROWS, backend=scripted(), sandbox_name="mine", docker_image="ubuntu:24.04", labels=["a"]
    )
    assert (env.sandbox_request.name, env.sandbox_request.labels, env.max_turns) == ("mine", ["a"], 10)
    assert env.stop_errors == [vf.SandboxError]
    [tool] = env.tool_defs
    assert tool["name"] == "bash" and list(tool["parameters"]["properties"]) == ["command"]
    state, _ = await rolled(env, *bash("x"))
    assert (state["docker_image"], state["start_command"]) == ("ubuntu:24.04", "tail -f /dev/null")
    assert state["sandbox_state"]["ready"] and len(state["sandbox_state"]["command_execution_times"]) == 1
    results = await env.evaluate(ScriptedClient(["done"]), "m")
    names = {"sandbox_ready_wait_time", "sandbox_command_execution_time", "bash_calls", "total_tool_calls"}
    assert names <= set(results["outputs"][0]["metrics"])


async def test_each_row_may_have_an_image_of_its_own():
    class Env(vf.SandboxEnv):
        def get_sandbox_request(self, state):
            return self.sandbox_request.model_copy(update={"docker_image": state["info"]["image"], "memory_gb": 3})

    backend = scripted()
    env = Env(dataset=[{"question": "?", "info": {"image": "swe:1"}}], backend=backend)
    await rolled(env, *bash("x"))
    assert (backend.sandboxes[0].spec.image, backend.sandboxes[0].spec.limits.memory_mb) == ("swe:1", 3072)
    assert env.sandbox_request.docker_image == "python:3.11-slim"


async def test_post_rollout_looks_into_the_sandbox_before_it_goes():
    class Env(vf.SandboxEnv):
        async def post_rollout(self, state):
            found = await self.sandbox_client.execute_command(state["sandbox_id"], "pytest -q")
            state["passed"] = found.exit_code == 0

    backend = scripted(lambda _: ExecResult(outcome="nonzero-exit", exit_code=1))
    env = Env(dataset=ROWS, backend=backend, rubric=vf.Rubric([lambda state: float(state["passed"])]))
    results = await env.evaluate(ScriptedClient(["done"]), "m")
    assert results["outputs"][0]["reward"] == 0.0
    assert backend.sandboxes[0].is_closed


async def test_a_post_rollout_of_the_older_kind_gets_messages_and_state():
    class Env(vf.SandboxEnv):
        async def post_rollout(self, messages, state, **kwargs):
            state["seen"] = (messages[-1]["content"], await self.bash("x", state["sandbox_id"]))
            await super().post_rollout(messages, state, **kwargs)

    state, _ = await rolled(Env(dataset=ROWS, backend=scripted()))
    assert state["seen"] == ("done", "ok")


@pytest.mark.parametrize("moment", ["making", "running"])
async def test_a_cancelled_rollout_leaves_no_sandbox(moment):
    started = asyncio.Event()

    class Slow(ScriptedSandboxes):
        async def create(self, spec=None):
            made = await super().create(spec)
            if moment == "making":
                try:
                    started.set()
                    await asyncio.sleep(250)
                except BaseException:
                    await made.close()
                    raise
            return made

    async def forever(_):
        started.set()
        await asyncio.sleep(250)

    backend = Slow({"*": forever})
    env = vf.SandboxEnv(dataset=ROWS, backend=backend)
    rollout = asyncio.create_task(rolled(env, *bash("x")))
    await until(started.is_set, by=rollout)
    rollout.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout
    assert backend.sandboxes and all(made.is_closed for made in backend.sandboxes)
    assert not env.active_sandboxes


async def test_teardown_deletes_what_no_rollout_deleted():
    backend = scripted()
    env = vf.SandboxEnv(dataset=ROWS, backend=backend)
    state = await env.setup_state(await env.init_state(env.train_rows()[0], None, "m"))
    await env.sandbox_client.wait_for_creation(state["sandbox_id"])
    await env.teardown()
    assert backend.sandboxes[0].is_closed


# Failures


def broken(_):
    raise vf.SandboxError("the engine hung up")


async def test_a_failing_sandbox_ends_the_rollout_on_its_own_side_and_is_no_zero():
    backend = scripted(broken)
    env = vf.SandboxEnv(dataset=ROWS, backend=backend, rubric=vf.Rubric([lambda: 0.0]))
    results = await env.evaluate(ScriptedClient([*bash("x"), "done"]), "m")
    record = results.records[0]
    assert (record.status, record.reward) == ("failed", None)
    assert [(error.side, error.type) for error in record.errors] == [("sandbox", "SandboxError")]
    assert backend.sandboxes[0].is_closed


async def test_a_failing_sandbox_is_not_told_to_the_model_whatever_the_author_lets_end_a_rollout():
    env = vf.SandboxEnv(dataset=ROWS, backend=scripted(broken), stop_errors=[])
    state, told = await rolled(env, *bash("x"))
    assert isinstance(state["error"], vf.SandboxError) and told == []


async def test_making_is_tried_again_and_a_command_is_not():
    class Moody(ScriptedSandboxes):
        tries = 0

        async def create(self, spec=None):
            self.tries += 1
            if self.tries < 3:
                raise vf.SandboxError("busy")
            return await super().create(spec)

    backend = Moody({"*": broken})
    env = vf.SandboxEnv(dataset=ROWS, backend=backend, base_delay=0.01)
    state, _ = await rolled(env, *bash("x"))
    assert backend.tries == 3 and len(backend.calls) == 1
    assert "hung up" in str(state["error"])


async def test_sandboxes_that_cannot_be_made_fail_the_rollout_after_the_last_try():
    class Down(ScriptedSandboxes):
        async def create(self, spec=None):
            raise vf.SandboxError("nobody there")

    env = vf.SandboxEnv(dataset=ROWS, backend=Down(), base_delay=0.01, max_retries=2)
    state, _ = await rolled(env, *bash("x"))
    assert isinstance(state["error"], vf.SandboxError) and "nobody there" in str(state["error"])


async def test_an_image_without_an_engine_ends_the_run_before_a_model_is_asked():
    env = vf.SandboxEnv(dataset=ROWS, docker_image="ubuntu:24.04", backend=AutoBackend(engines=[]))
    client = ScriptedClient(["done"])
    with pytest.raises(vf.NoSandboxError, match=r"ubuntu:24\.04.*Start docker or podman"):
        await env.evaluate(client, "m")
    assert client.requests == []
    assert issubclass(vf.NoSandboxError, vf.SetupError), "which vf-eval ends with exit code 3 on"


async def test_auto_takes_an_engine_that_answers_and_says_once_that_it_took_this_machine(local, caplog):
    class Down(ScriptedSandboxes):
        async def capabilities(self):
            raise vf.SetupError("no socket")

    engine = scripted()
    assert await AutoBackend(engines=[Down(), engine]).choose("ubuntu") is engine
    auto = AutoBackend(engines=[Down()])
    with caplog.at_level(logging.INFO, "verifiers"):
        first = await auto.choose("python:3.12")
        assert await auto.choose(None) is first and first.name == "local"
    assert len([line for line in caplog.messages if "are of this machine" in line]) == 1
    with pytest.raises(vf.NoSandboxError, match="scripted: no socket"):
        await auto.choose("ubuntu")
    await auto.close()


async def test_rollouts_that_begin_together_ask_for_an_engine_once():
    class Counted(ScriptedSandboxes):
        asked = 0

        async def capabilities(self):
            self.asked += 1
            await asyncio.sleep(0.01)
            return await super().capabilities()

    engine = Counted()
    auto = AutoBackend(engines=[engine])
    assert await asyncio.gather(*(auto.choose("x") for _ in range(50))) == [engine] * 50
    assert engine.asked == 1


async def test_a_backend_and_a_network_may_be_chosen_when_the_environment_is_made_already():
    env, backend = vf.SandboxEnv(dataset=ROWS), scripted("ours")
    env.set_kwargs(backend=backend, network=True)  # as `vf-eval -x '{"backend": …}'` does
    _, told = await rolled(env, *bash("x"))
    assert told == ["ours"] and backend.sandboxes[0].spec.limits.network


async def test_a_local_sandbox_has_no_images_and_no_gpu(local):
    for asked in ({"docker_image": "ubuntu"}, {"gpu_count": 1}):
        env = vf.SandboxEnv(dataset=ROWS, backend=local, **asked)
        state, _ = await rolled(env)
        assert isinstance(state["error"], vf.NoSandboxError)


# What authors put in place of ours


async def test_an_authors_tool_in_the_place_of_bash_may_take_fewer_arguments():
    class Env(vf.SandboxEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.ours = self.bash
            self.tool_map["bash"] = self.tracked

        async def tracked(self, command: str, sandbox_id: str) -> str:
            return "seen: " + await self.ours(command=command, sandbox_id=sandbox_id)

    _, told = await rolled(Env(dataset=ROWS, backend=scripted()), *bash("x"))
    assert told == ["seen: ok"]


async def test_tools_of_the_authors_run_in_the_rollouts_sandbox(local):
    class Env(vf.SandboxEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.remove_tool(self.bash)
            self.add_tool(self.count, args_to_skip=["sandbox_id"])

        async def setup_state(self, state, **kwargs):
            state = await super().setup_state(state, **kwargs)
            await self.sandbox_client.wait_for_creation(state["sandbox_id"])
            await self.sandbox_client.upload_bytes(state["sandbox_id"], "names", b"a\nb\n", "names")
            return state

        def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            return {
                **super().update_tool_args(tool_name, tool_args, messages, state),
                "sandbox_id": state["sandbox_id"],
            }

        async def count(self, path: str, sandbox_id: str) -> str:
            """Counts the lines of a file."""
            run = self.with_retry(self.sandbox_client.execute_command)
            return (await run(sandbox_id, f"wc -l < {path}", timeout=5)).stdout

    env = Env(dataset=ROWS, backend=local)
    assert [tool["name"] for tool in env.tool_defs] == ["count"]
    _, told = await rolled(env, call("count", path="names"))
    assert told == ["2\n"]


async def test_a_client_of_the_authors_may_take_the_place_of_ours():
    class Theirs:
        deleted = ()

        async def create(self, request):
            return type("Made", (), {"id": "theirs-1"})

        async def wait_for_creation(self, sandbox_id):
            pass

        async def execute_command(self, sandbox_id, command, working_dir=None, timeout=None):
            if command == "break":
                raise OSError("connection lost")
            if command == "sleep":
                raise type("CommandTimeoutError", (Exception,), {})
            return type("Response", (), {"stdout": f"{sandbox_id}: {command}", "stderr": "", "exit_code": 0})

        async def delete(self, sandbox_id):
            self.deleted += (sandbox_id,)

    env = vf.SandboxEnv(dataset=ROWS)
    env.sandbox_client = Theirs()
    state, told = await rolled(env, *bash("ls", "sleep", "break"))
    assert told == ["theirs-1: ls", "Error: the command timed out after 30 s and was ended."]
    assert type(state["error"]) is vf.SandboxError and "connection lost" in str(state["error"])
    assert env.sandbox_client.deleted == ("theirs-1",)


async def test_the_client_has_the_files_and_jobs_of_the_hosted_services_own(local, tmp_path):
    client = SandboxClient(local)
    made = await client.create(CreateSandboxRequest(name="x"))
    (tmp_path / "here.txt").write_text("from here")
    await client.upload_file(made.id, "there.txt", str(tmp_path / "here.txt"))
    assert (await client.read_file(made.id, "there.txt")).content == "from here"
    await client.execute_command(made.id, "tr a-z A-Z < there.txt > up.txt")
    await client.download_file(made.id, "up.txt", str(tmp_path / "back.txt"))
    assert (tmp_path / "back.txt").read_text() == "FROM HERE"
    assert (await client.execute_command(made.id, "exit 3")).exit_code == 3
    with pytest.raises(FileNotFoundError):
        await client.read_file(made.id, "no.txt")
    done = await client.run_background_job(made.id, "echo out; echo err >&2; exit 4", timeout=100)
    assert (done.exit_code, done.stdout, done.stderr) == (4, "out\n", "err\n")
    with pytest.raises(CommandTimeoutError):
        await client.run_background_job(made.id, "sleep 30", timeout=0.2)
    other = SandboxClient(local)
    assert (await other.execute_command(made.id, "echo same")).stdout == "same\n", "an id is known to every client"
    await client.bulk_delete([made.id, "unknown"])
    with pytest.raises(vf.SandboxError):
        await other.execute_command(made.id, "true")


async def test_the_mixin_gives_sandboxes_to_any_environment(local):
    class Env(vf.SandboxMixin, vf.SingleTurnEnv):
        def __init__(self, backend, **kwargs):
            super().__init__(**kwargs)
            self.init_sandbox_client(backend=backend, sandbox_client_max_workers=3)

        async def setup_state(self, state):
            await self.create_sandbox(state, CreateSandboxRequest(name="mine"))
            return state

        async def post_sandbox_setup(self, state):
            await self.upload_bundle(state["sandbox_id"], {"tests/a.sh": "echo passed"}, ".")

        async def post_rollout(self, state):
            job = await self.run_background_job(state, "sh tests/a.sh", timeout=100)
            state["said"] = job.stdout
            state["missing"] = await self.read_file(state["sandbox_id"], "nothing")

        @vf.cleanup
        async def destroy_sandbox(self, state):
            await self.delete_sandbox(state["sandbox_id"])

    env = Env(local, dataset=ROWS)
    state, _ = await rolled(env)
    assert (state["error"], state["said"], state["missing"]) == (None, "passed\n", None)
    assert env.active_sandboxes == set()


@pytest.mark.skipif(
    importlib.util.find_spec("prime_sandboxes").origin != "verifiers.compat.paths", reason="the real one"
)
async def test_environments_that_import_the_services_package_find_its_names():
    if importlib.util.find_spec("prime_sandboxes").origin != "verifiers.compat.paths":
        pytest.skip("the package itself is installed here")
    import prime_sandboxes
    from prime_sandboxes import CommandTimeoutError as Theirs
    from prime_sandboxes import CreateSandboxRequest as Request
    from prime_sandboxes.models import AdvancedConfigs

    assert Theirs is CommandTimeoutError and Request is CreateSandboxRequest and AdvancedConfigs(a=1).a == 1
    assert not issubclass(prime_sandboxes.SandboxOOMError, prime_sandboxes.SandboxTimeoutError)
    env = vf.SandboxEnv(dataset=ROWS, backend=scripted())
    state = await env.setup_state(await env.init_state(env.train_rows()[0], None, "m"))
    found = await prime_sandboxes.AsyncSandboxClient().execute_command(state["sandbox_id"], "x")
    assert found.stdout == "ok\n"
    await env.destroy_sandbox(state)


# PythonEnv


async def test_variables_imports_and_files_stay_from_piece_to_piece(local):
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="")
    pieces = python(
        "import math\nx = 6", "print('x is', x); math.factorial(x)", "open('f', 'w').write('!')", "x = 7", "1 / 0"
    )
    state, told = await rolled(env, *pieces, *python("open('f').read(), x"))
    assert told[:4] == ["(no output)", "x is 6\nOut[2]: 720", "Out[3]: 1", "(no output)"]
    assert told[4].splitlines()[-1] == "ZeroDivisionError: division by zero" and "worker" not in told[4]
    assert told[5] == "Out[6]: ('!', 7)"
    assert state["python_state"]["execution_count"] == 6 and state["python_state"]["ready"]
    assert [tool["name"] for tool in env.tool_defs] == ["python"]
    assert list(env.tool_defs[0]["parameters"]["properties"]) == ["code"]


@steady(0.3)
async def test_code_at_its_time_limit_is_interrupted_and_its_variables_live_on(local):
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="", timeout_per_command_seconds=1.5)
    _, told = await rolled(env, *python("x = 1\nprint('begun')\nwhile True: x += 1", "x > 1"))
    assert told[0].startswith("begun\nError: the code timed out after 1.5 s and was interrupted")
    assert told[1] == "Out[2]: True"


@steady(0.3)
async def test_an_interpreter_that_is_lost_is_replaced_and_the_model_is_told(local):
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="", timeout_per_command_seconds=1.5)
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    state, told = await rolled(
        env, *python("x = 1; open('f', 'w').close()", "import os; os._exit(3)", "'x' in globals(), os", deaf, "2")
    )
    assert "the interpreter died" in told[1] and "variables and imports are gone, files are not" in told[1]
    assert "NameError: name 'os' is not defined" in told[2]
    assert "timed out after 1.5 s. A new interpreter was started" in told[3]
    assert told[4] == "Out[1]: 2" and state["error"] is None


async def test_what_the_code_writes_to_its_streams_and_reads_does_not_touch_the_way_to_the_parent(local):
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="")
    code = "import os, sys\nos.write(1, b'raw ')\nprint(repr(sys.stdin.read()))\nos.system('echo child; cat')"
    _, told = await rolled(env, *python(code))
    assert told == ["raw ''\nchild\nOut[1]: 0"]


async def test_packages_that_are_asked_for_can_be_imported_and_one_that_is_missing_ends_the_run(local):
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="msgspec")
    _, told = await rolled(env, *python("import msgspec; msgspec.json.encode([1])"))
    assert told == ["Out[1]: b'[1]'"]
    env = vf.PythonEnv(dataset=ROWS, backend=local, pip_install_packages="no-such-package-here")
    with pytest.raises(vf.NoSandboxError, match="uv pip install no-such-package-here"):
        await env.evaluate(ScriptedClient(["done"]), "m")


async def test_authors_run_code_of_their_own_before_and_after_the_model(local):
    class Env(vf.PythonEnv):
        def __init__(self, **kwargs):
            super().__init__(pip_install_packages="", **kwargs)

        async def setup_state(self, state, **kwargs):
            state = await super().setup_state(state, **kwargs)
            await self.python(
                code="secret = 41", sandbox_id=state["sandbox_id"], sandbox_state=state["sandbox_state"],
                python_state=state["python_state"],
            )  # fmt: skip
            return state

        async def post_rollout(self, state):
            await super().post_rollout(state)
            done = await self._send_worker_request(state["sandbox_id"], state["sandbox_state"], {"code": "answer"})
            state["found"] = done["result"]
            state["listed"] = await self.bash("pwd", state["sandbox_id"], state["sandbox_state"])

    state, _ = await rolled(Env(dataset=ROWS, backend=local), *python("answer = secret + 1"))
    assert (state["error"], state["found"], state["listed"]) == (None, "42", "/work")


async def test_rollouts_side_by_side_have_interpreters_of_their_own_and_leave_nothing(local):
    env = vf.PythonEnv(dataset=[{"question": str(n)} for n in range(6)], backend=local, pip_install_packages="")

    async def one(row):
        _, told = await rolled(env, *python(f"x = {row['example_id']}", "x"), row=row)
        return told[1]

    assert await asyncio.gather(*map(one, env.train_rows())) == [f"Out[2]: {n}" for n in range(6)]
    assert not env.active_sandboxes and not local._cells


# BashEnv


@steady(0.3)
async def test_a_shell_keeps_its_folder_and_variables_and_tells_its_status(local):
    row = {"question": "?", "info": {"files": {"data/n.txt": "1 2 3"}}}
    env = vf.BashEnv(dataset=[row], backend=local, timeout_per_command_seconds=1.5)
    state, told = await rolled(
        env, *bash("cd data; N=3", "pwd; echo $N; cat n.txt", "false", "nosuch", "sleep 30", "pwd; ls data", "exit 2")
    )
    assert state["error"] is None
    assert told[1] == "/work/data\n3\n1 2 3" and told[2] == "(exit status 1)"
    assert told[3].startswith("stderr:") and told[3].endswith("(exit status 127)")
    assert "timed out after 1.5 s. A new shell was started" in told[4]
    assert told[5] == "/work\nn.txt" and "a new one was started" in told[6]


async def test_interpreters_and_jobs_run_where_there_are_no_namespaces():
    backend = LocalBackend(max_level=1)
    try:
        await backend.capabilities()
    except vf.SetupError as error:
        pytest.skip(f"no local sandbox of level 1 here: {error}")
    async with backend:
        env = vf.PythonEnv(dataset=ROWS, backend=backend, pip_install_packages="")
        _, told = await rolled(env, *python("x = 1", "x"))
        assert told == ["(no output)", "Out[2]: 1"]
        env = vf.BashEnv(dataset=ROWS, backend=backend, start_command="echo up > flag")
        wait = "for i in $(seq 250); do [ -f flag ] && break; sleep 0.1; done"
        _, told = await rolled(env, *bash("N=3", f"echo $N; {wait}; cat flag"))
        assert told[1] == "3\nup"
        made = await env.sandbox_client.create(env.sandbox_request)
        done = await env.sandbox_client.run_background_job(made.id, "pwd > /dev/null; echo out", timeout=100)
        assert (done.exit_code, done.stdout) == (0, "out\n")
        await env.sandbox_client.delete(made.id)


async def test_files_that_are_no_texts_are_refused():
    env = vf.BashEnv(dataset=[{"question": "?", "info": {"files": ["a"]}}], backend=scripted())
    state, _ = await rolled(env)
    assert "info['files'] must be texts by their paths" in str(state["error"])


async def test_a_sandbox_that_cannot_be_deleted_is_a_line_of_the_log_and_nothing_more(caplog):
    class Stuck(SandboxClient):
        async def delete(self, sandbox_id):
            raise OSError("no answer")

    env = vf.SandboxEnv(dataset=ROWS)
    env.sandbox_client = Stuck(scripted())
    with caplog.at_level(logging.WARNING, "verifiers"):
        state, told = await rolled(env, *bash("x"))
    assert (state["error"], told) == (None, ["ok"])
    assert any("could not be deleted: OSError: no answer" in line for line in caplog.messages)
    assert env.active_sandboxes == {state["sandbox_id"]}
    env.sandbox_client = SandboxClient(scripted())  # for the teardown when this process ends
