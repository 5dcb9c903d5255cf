"""`AgentEnv`: an agent that knows nothing of us is a rollout, recorded turn by turn, within its limits, and ended."""

import asyncio
import json
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from agent_programs import ENDLESS, OPENAI, agent
from waiting import steady, until

import verifiers as vf
from verifiers.envs.agent_tunnel import AgentTunnel
from verifiers.errors import SandboxError, SetupError
from verifiers.records import decode_record, encode_record
from verifiers.sandbox import LocalBackend, PodmanBackend, SandboxLimits, SandboxSpec

LIMITS = SandboxLimits(wall_s=250, memory_mb=1024, processes=64)
CONTAINER_HOST = os.environ.get("VF_TEST_CONTAINER_HOST")
CONTAINER_IMAGE = os.environ.get("VF_TEST_CONTAINER_IMAGE", "localhost/vf-test:1")
COLUMNS = ["agent_exit_code", "agent_stdout", "agent_stderr", "agent_files", "sandbox_id"]


def made(body, *, env=vf.AgentEnv, files=None, limits=LIMITS, source=agent, **options):
    """An environment of one row, whose agent is `body`; a plain process where this machine has no sandbox for it."""
    spec = SandboxSpec(files={"agent.py": source(body).encode(), **(files or {})}, limits=limits)
    options = {"dataset": [{"question": "What are 2 and 3?", "answer": "5"}], "rubric": vf.Rubric([always]), **options}
    return env("python3 agent.py", sandbox=spec, **{"unsafe": True, "grace_s": 60.0, **options})


def always() -> float:
    return 1.0


async def rolled(env, client="ok", **options):
    client = client if hasattr(client, "complete") else vf.ScriptedClient(client, with_tokens=True)
    results = await env.evaluate(client, "big", state_columns=COLUMNS, **options)
    await env.teardown()
    return results.records[0]


def output(record):
    return record.state_columns["agent_stdout"]


async def sandboxes_or_skip(**options):
    backend = LocalBackend(min_level=2, **options)
    try:
        await backend.capabilities()
    except SetupError as error:
        await backend.close()
        pytest.skip(str(error))
    return backend


# Turns


async def test_each_request_is_a_turn_of_one_conversation():
    body = """
messages = [{"role": "system", "content": "Be short."}, user(task)]
messages.append(ask(messages))
messages.append(user("sure?"))
print(ask(messages)["content"])
"""
    client = vf.ScriptedClient(["five", "yes"], with_tokens=True)
    record = await rolled(made(body), client)
    assert output(record) == "yes\n"
    assert [m["content"] for m in record.prompt] == ["Be short.", "What are 2 and 3?"]
    assert [m["content"] for m in record.messages] == ["five", "sure?", "yes"]
    assert [(turn.start, turn.end, turn.prompt) for turn in record.turns] == [(0, 1, None), (2, 3, None)]
    first, second = (turn.tokens for turn in record.turns)
    assert second.prefix_length == len(first.prompt_ids) + len(first.completion_ids)
    assert (record.stop_condition, record.reward, record.metrics["num_turns"]) == ("agent_ended", 1.0, 2.0)
    assert record.usage.completion == sum(len(r.completion_ids) + 1 for r in (first, second))
    assert record.state_columns["agent_exit_code"] == 0


async def test_a_program_written_for_the_openai_package_runs_unmodified_in_a_sandbox():
    def says(request):
        if request.messages[-1].role == "tool":
            return f"It is {request.messages[-1].content}."
        return {"content": None, "tool_calls": [vf.ToolCall("c1", "add", '{"a": 2, "b": 3}')]}

    async with await sandboxes_or_skip(packages=True) as backend:
        env = made(OPENAI, source=str, backend=backend, keep_files=["found.json"])
        record = await rolled(env, says)
    assert record.errors == []
    found = json.loads(record.state_columns["agent_files"]["found.json"])
    assert found == {
        "models": ["big"],
        "text": "It is 5.",
        "finish": "tool_calls",
        "total": found["total"],
        "streamed": [[0, "add", '{"a": 2, "b": 3}']],
    }
    assert found["total"] > 0
    assert [m["role"] for m in record.turns[0].prompt or record.prompt] == ["system", "user"]
    assert len(record.turns) == 3


async def test_what_clients_add_to_a_reply_or_leave_out_of_it_does_not_start_another_conversation():
    body = """
messages = [user(task)]
reply = ask(messages)
del reply["reasoning_content"]
reply["tool_calls"][0]["function"]["arguments"] = '{"a":2}'
messages += [{**reply, "content": "", "annotations": [], "refusal": None, "index": 0}]
messages += [{"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "5"}]}]
ask(messages)
"""
    call = vf.ToolCall("c1", "add", '{"a": 2}')
    client = vf.ScriptedClient([{"content": None, "reasoning_content": "hm", "tool_calls": [call]}, "5"])
    record = await rolled(made(body), client)
    assert [turn.prompt for turn in record.turns] == [None, None]
    assert client.requests[1].messages[1]["reasoning_content"] == "hm"
    assert "annotations" not in client.requests[1].messages[1]


async def test_a_context_that_the_agent_compacts_is_recorded_as_each_turn_saw_it():
    body = """
system = {"role": "system", "content": "Be short."}
messages = [system, user(task)]
for n in range(2):
    messages.append(ask(messages))
    messages.append(user("more %d" % n))
messages = [system, user("Summary: so far so good."), user("Finish.")]
messages.append(ask(messages))
messages.append(user("Really."))
ask(messages)
"""
    client = vf.ScriptedClient(["a", "b", "c", "d"], with_tokens=True)
    record = await rolled(made(body), client)
    whole = [turn.tokens.prefix_length + len(turn.tokens.prompt_ids) for turn in record.turns]
    assert whole == [len(prompt_words(request)) for request in client.requests]
    record = decode_record(encode_record(record))
    for turn, request in zip(record.turns, client.requests, strict=True):
        prompt = turn.prompt if turn.prompt is not None else [*record.prompt, *record.messages[: turn.start]]
        assert [m["content"] for m in prompt] == [m.content for m in request.messages]
        reply = turn.completion if turn.completion is not None else record.messages[turn.start : turn.end]
        assert len(reply) == 1
    assert [m["content"] for m in record.messages][-4:] == ["Finish.", "c", "Really.", "d"]


def prompt_words(request):
    """As the scripted client counts them: a mark and the words of each message, an end after replies, a mark."""
    return [
        word
        for message in request.messages
        for word in ["<role>", *message.content.split(), *(["<end>"] if message.role == "assistant" else [])]
    ] + ["<assistant>"]


async def test_requests_side_by_side_are_turns_of_conversations_of_their_own():
    body = """
said = {}

def talk(name):
    messages = [user(task), user(name)]
    for n in range(3):
        messages.append(ask(messages))
        messages.append(user("%s %d" % (name, n)))
    said[name] = [m["content"] for m in messages if m["role"] == "assistant"]

threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(said))
"""

    async def says(request):
        await asyncio.sleep(0.02)
        return f"{request.messages[1].content}{len(request.messages)}"

    client = vf.ScriptedClient(says, with_tokens=True)
    record = await rolled(made(body), client)
    assert json.loads(output(record)) == {name: [f"{name}2", f"{name}4", f"{name}6"] for name in "abcd"}
    assert len(record.turns) == 12
    prompts = [turn.prompt or [*record.prompt, *record.messages[: turn.start]] for turn in record.turns]
    replies = [(turn.completion or record.messages[turn.start : turn.end])[0]["content"] for turn in record.turns]
    assert all(reply == f"{prompt[1]['content']}{len(prompt)}" for prompt, reply in zip(prompts, replies, strict=True))
    assert sorted(replies) == sorted(f"{name}{n}" for name in "abcd" for n in (2, 4, 6))


async def test_the_same_request_made_twice_is_two_turns_of_different_seeds():
    client = vf.ScriptedClient("ok")
    record = await rolled(made("ask([user(task)]); ask([user(task)])"), client, seed=7)
    assert len(record.turns) == 2
    assert len({request.seed for request in client.requests}) == 2


@steady(0.5)
async def test_a_request_whose_asker_has_hung_up_is_no_turn():
    body = """
try:
    post("/v1/chat/completions", {"messages": [user("slow")]}, timeout=2)
except OSError:
    print("hung up")
ask([user(task)])
"""
    ended = []

    async def says(request):
        if request.messages[0].content == "slow":
            try:
                await asyncio.sleep(250)
            finally:
                ended.append("slow")
        await until(lambda: ended)
        return "ok"

    record = await rolled(made(body), says)
    assert (output(record), ended, len(record.turns)) == ("hung up\n", ["slow"], 1)


async def test_the_runs_sampling_arguments_count_more_than_the_agents():
    body = """
ask([user(task)], temperature=0, stop=["END"], max_completion_tokens=50, metadata={"a": "b"}, n=1)
ask([user(task)], max_tokens=5000)
"""
    client = vf.ScriptedClient("ok")
    await rolled(made(body), client, sampling_args={"temperature": 1.0, "max_tokens": 100})
    first, second = (request.sampling for request in client.requests)
    assert first == {"temperature": 1.0, "stop": ["END"], "max_tokens": 50}
    assert second["max_tokens"] == 100


# Actors


async def test_an_actor_is_chosen_by_model_name_or_address_and_told_in_its_turn():
    body = """
ask([user(task)])
ask([user("right?")], model="critic")
ask([user("right?")], path="/judge/v1/chat/completions")
ask([user(task)], model="gpt-4o-mini")
print(post("/nobody/v1/chat/completions", {"messages": [user("?")]}))
"""
    body = body.replace("ask([user(task)], model", "ask([user(task), user('x')], model")
    client, other = vf.ScriptedClient("ok", with_tokens=True), vf.ScriptedClient("fine")
    actors = {"critic": "small", "judge": vf.AgentActor("wise", client=other)}
    record = await rolled(made(body, actors=actors), client)
    assert [turn.actor for turn in record.turns] == ["assistant", "critic", "judge", "assistant"]
    assert record.actors == ["assistant", "critic", "judge"]
    assert [request.model for request in client.requests] == ["big", "small", "big"]
    assert [request.model for request in other.requests] == ["wise"]
    assert "there is no actor 'nobody'; there are: critic, judge" in output(record)
    assert record.messages[-1]["content"] == "ok"


# Requests that are refused


async def test_a_request_that_is_wrong_is_told_what_is_wrong():
    body = """
tries = {
    "key": post("/v1/chat/completions", {"messages": [user("x")]}, key="another"),
    "path": post("/v1/responses", {}),
    "json": post("/v1/chat/completions", b"{"),
    "messages": post("/v1/chat/completions", {"messages": []}),
    "role": post("/v1/chat/completions", {"messages": [{"content": "x"}]}),
    "n": post("/v1/chat/completions", {"messages": [user("x")], "n": 2}),
}
ask([user(task)])
print(json.dumps(tries))
"""
    record = await rolled(made(body))
    tries = {
        name: (status, answer["error"]["message"]) for name, (status, answer) in json.loads(output(record)).items()
    }
    assert {name: status for name, (status, _) in tries.items()} == {
        "key": 401, "path": 404, "json": 400, "messages": 400, "role": 400, "n": 400,
    }  # fmt: skip
    assert "POST /v1/chat/completions" in tries["path"][1]
    assert "role" in tries["role"][1]
    assert len(record.turns) == 1


@pytest.mark.parametrize(
    "limit, turns",
    [({"max_turns": 3}, 3), ({"max_total_completion_tokens": 8}, 3), ({"env": "stops"}, 2), ({"max_seq_len": 12}, 2)],
    ids=["max_turns", "tokens", "own condition", "max_seq_len"],
)
async def test_after_a_limit_requests_are_refused_by_its_name(limit, turns):
    class Stops(vf.AgentEnv):
        @vf.stop
        async def said_enough(self, state):
            return len(state["trajectory"]) >= 2

    name = {
        "max_turns": "max_turns_reached",
        "max_total_completion_tokens": "max_total_completion_tokens_reached",
        "env": "said_enough",
        "max_seq_len": "prompt_too_long",
    }[next(iter(limit))]
    limit = {"env": Stops} if "env" in limit else limit
    record = await rolled(made(ENDLESS, keep_files=["said.txt"], **limit))
    assert (record.stop_condition, len(record.turns)) == (name, turns)
    assert output(record) == f"403 {name}\n"
    assert record.state_columns["agent_files"] == {"said.txt": "x" * turns}  # it could act on its last reply
    assert (record.errors, record.reward) == ([], 1.0)


async def test_requests_side_by_side_do_not_get_past_the_limit_of_turns():
    body = """
threads = [threading.Thread(target=ask, args=([user(str(n))],)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

    async def says(request):
        await asyncio.sleep(0.1)
        return "ok"

    record = await rolled(made(body, max_turns=3), says)
    assert (len(record.turns), record.stop_condition) == (3, "max_turns_reached")


async def test_an_agent_that_goes_on_asking_is_ended():
    body = """
open("pid", "w").write("x")
while True:
    post("/v1/chat/completions", {"messages": [user(task)]})
"""
    record = await rolled(made(body, max_turns=1, grace_s=0.5))
    assert (record.stop_condition, record.state_columns["agent_exit_code"]) == ("max_turns_reached", None)
    assert record.timing.total_s < 100


@steady(1.0)
async def test_an_agent_that_takes_too_long_is_ended_and_its_rollout_truncated():
    record = await rolled(made("ask([user(task)]); time.sleep(250)", timeout_s=5.0))
    assert (record.stop_condition, record.is_truncated, record.errors) == ("timeout_reached", True, [])
    assert record.timing.total_s < 100


# Failures


@pytest.mark.parametrize("body", ["", "print('bye'); sys.exit(3)"], ids=["exit 0", "exit 3"])
async def test_an_agent_that_never_asked_is_a_failure_and_not_a_zero(body):
    record = await rolled(made(body, scores_crashes=True))
    assert (record.reward, record.status, record.errors[0].side) == (None, "failed", "environment")
    assert "without a reply of the model" in record.errors[0].message


@steady(1.0)
@pytest.mark.parametrize("body, side", [("time.sleep(250)", "environment"), ("ask([user(task)])", "model")])
async def test_time_that_is_up_before_any_reply_is_a_failure_of_whoever_was_slow(body, side):
    async def says(request):
        await asyncio.sleep(250)

    record = await rolled(made(body, timeout_s=2.0 if side == "environment" else 8.0), says)
    assert (record.reward, record.errors[0].side, record.turns) == (None, side, [])


async def test_a_turn_that_is_added_slowly_counts_once():
    class Slow(vf.AgentEnv):
        async def add_trajectory_step(self, state, trajectory_step):
            await super().add_trajectory_step(state, trajectory_step)
            await asyncio.sleep(0.3)

    body = """
threads = [threading.Thread(target=ask, args=([user(str(n))],)) for n in range(2)]
for thread in threads:
    thread.start()
    time.sleep(0.1)
for thread in threads: thread.join()
"""
    record = await rolled(made(body, env=Slow, max_turns=2))
    assert (len(record.turns), record.stop_condition) == (2, "agent_ended")


async def test_an_agent_that_crashes_is_a_failure_unless_crashes_are_to_be_scored():
    body = "ask([user(task)])\nraise RuntimeError('no idea')"
    failed = await rolled(made(body))
    assert (failed.reward, failed.stop_condition, failed.errors[0].side) == (None, "has_error", "environment")
    assert "exit code 1" in failed.errors[0].message
    assert "RuntimeError: no idea" in failed.errors[0].message
    assert failed.state_columns["agent_stderr"].endswith("RuntimeError: no idea\n")
    scored = await rolled(made(body, scores_crashes=True))
    assert (scored.reward, scored.stop_condition, scored.state_columns["agent_exit_code"]) == (1.0, "agent_ended", 1)


@pytest.mark.parametrize(
    "end",
    ["os.kill(tunnel, 9); time.sleep(60)", "post('/v1/chat/completions', {'messages': [user('odd')]}); sys.exit(1)"],
    ids=["ends the tunnel", "ends after a refused request"],
)
async def test_how_an_agent_escapes_is_the_models_doing_where_crashes_are_scored(end):
    body = f"""
import glob
ask([user(task)])
tunnel = [int(p.split("/")[2]) for p in glob.glob("/proc/[0-9]*/cmdline") if b"Waiting" in open(p, "rb").read()][-1]
{end}
"""

    def says(request):
        return vf.ModelRequestError("no such thing") if request.messages[0].content == "odd" else "ok"

    backend = await sandboxes_or_skip()  # as a plain process it could find the tunnel of another rollout
    async with backend:
        failed = await rolled(made(body, backend=backend), says)
        assert (failed.reward, failed.errors[0].side in ("sandbox", "model")) == (None, True)
        scored = await rolled(made(body, backend=backend, scores_crashes=True), says)
    assert (scored.reward, scored.errors, scored.stop_condition) == (1.0, [], "agent_ended")


async def test_odd_requests_are_refused_or_mended_and_no_failure():
    body = r"""
deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
print(post("/v1/chat/completions", deep)[0])
print(post("/v1/chat/completions", {"messages": [user("x")], "stream_options": "yes"})[0])
print(post("/v1/chat/completions", {"messages": [user("x")], "tools": [1]})[0])
ask([user("a\udce9b")])
"""
    client = vf.ScriptedClient("ok")
    record = await rolled(made(body), client)
    assert output(record).split() == ["400"] * 3
    assert client.requests[0].messages[0].content == "a?b"
    assert decode_record(encode_record(record)).status == "scored"


async def test_a_program_that_there_is_not_is_named():
    env = vf.AgentEnv(["no-such-agent"], dataset=[{"question": "?"}], unsafe=True, sandbox=SandboxSpec(limits=LIMITS))
    record = await rolled(env)
    assert "no-such-agent: No such file" in record.errors[0].message


async def test_a_model_that_is_out_of_reach_fails_the_rollout_on_its_side():
    body = "print(post('/v1/chat/completions', {'messages': [user(task)]})[0])\ntime.sleep(250)"
    record = await rolled(made(body), vf.ScriptedClient(vf.ModelUnavailableError("refused")))
    assert (record.errors[0].side, record.errors[0].type) == ("model", "ModelUnavailableError")
    assert record.timing.total_s < 100


async def test_what_the_models_server_refuses_is_told_to_the_agent_which_may_ask_otherwise():
    body = """
status, answer = post("/v1/chat/completions", {"messages": [user("odd")]})
print(status, answer["error"]["message"])
if task.endswith("?"): ask([user(task)])
"""

    def says(request):
        return vf.ModelRequestError("no such thing") if request.messages[0].content == "odd" else "ok"

    record = await rolled(made(body), says)
    assert (output(record), record.reward) == ("400 no such thing\n", 1.0)
    record = await rolled(made(body, dataset=[{"question": "Stop there."}]), says)
    assert (record.reward, record.errors[0].side) == (None, "model")


async def test_a_full_context_is_told_to_the_agent_which_may_compact_it():
    body = """
long = [user("word " * 20)]
messages = [user(task)]
messages.append(ask(messages))
status, answer = post("/v1/chat/completions", {"messages": messages + long})
print(status, answer["error"]["code"])
if "compact" in task: ask([user("In short.")])
"""

    def says(request):
        words = sum(len(m.content.split()) for m in request.messages)
        return vf.OverlongPromptError("too long") if words > 15 else "ok"

    record = await rolled(made(body, dataset=[{"question": "compact it"}]), says)
    assert output(record) == "400 context_length_exceeded\n"
    assert (record.stop_condition, len(record.turns), record.is_truncated) == ("agent_ended", 2, False)
    record = await rolled(made(body), says)
    assert (record.stop_condition, len(record.turns), record.is_truncated) == ("prompt_too_long", 1, True)
    assert record.errors == []


async def test_what_an_author_raises_fails_the_rollout_on_the_environments_side():
    class Broken(vf.AgentEnv):
        async def add_trajectory_step(self, state, trajectory_step):
            raise KeyError("mine")

    record = await rolled(made("ask([user(task)]); time.sleep(60)", env=Broken))
    assert (record.errors[0].side, record.reward) == ("environment", None)
    assert record.timing.total_s < 100


# Output, files, the sandbox


async def test_of_an_output_without_end_the_last_part_is_kept():
    body = "ask([user(task)])\nfor n in range(200_000): print('line', n)\nprint('the end')"
    record = await rolled(made(body, kept_output_kb=4))
    text = output(record)
    assert text.endswith("the end\n")
    assert text.startswith("[")
    assert len(text) < 4200


async def test_what_an_agent_leaves_running_holds_nothing_up():
    body = "import subprocess\nask([user(task)])\nsubprocess.Popen(['sleep', '60'])"
    record = await rolled(made(body))
    assert (record.reward, record.stop_condition) == (1.0, "agent_ended")
    assert record.timing.total_s < 100


async def test_files_are_read_and_the_sandbox_is_there_for_post_rollout_and_gone_afterwards():
    seen = []

    class Graded(vf.AgentEnv):
        async def post_rollout(self, state):
            sandbox = self.sandbox_of(state)
            seen.append((sandbox, await sandbox.exec("cat made.txt"), state["completion"][-1]["content"]))

        def agent_variables(self, state):
            return {"WORD": state["answer"]}

    body = "ask([user(task)])\nopen('made.txt', 'w').write(os.environ['WORD'] + open('given.txt').read())"
    env = made(
        body, env=Graded, files={"given.txt": b"!"}, setup_command="echo -n ? >> given.txt",
        keep_files=["made.txt", "not-made.txt"],
    )  # fmt: skip
    record = await rolled(env)
    assert record.state_columns["agent_files"] == {"made.txt": "5!?"}
    ((sandbox, result, reply),) = seen
    assert (result.text, reply, sandbox.id) == ("5!?", "ok", record.state_columns["sandbox_id"])
    assert sandbox.is_closed


async def test_a_set_up_command_that_fails_is_a_failure_of_the_sandbox():
    record = await rolled(made("ask([user(task)])", setup_command="echo nothing to install >&2; exit 4"))
    assert (record.errors[0].side, record.reward, record.turns) == ("sandbox", None, [])
    assert "exit code 4: nothing to install" in record.errors[0].message


async def test_an_agent_in_a_sandbox_reaches_its_model_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("VF_TEST_SECRET", "of the caller")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (tmp_path / "secret").write_text("of the caller")
        body = f"""
import socket
ask([user(task)])
print("VF_TEST_SECRET" in os.environ, os.path.exists({str(tmp_path / "secret")!r}))
try:
    socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), 1)
except OSError:
    print("not reached")
"""
        async with await sandboxes_or_skip() as backend:
            record = await rolled(made(body, backend=backend))
    assert output(record) == "False False\nnot reached\n"
    assert len(record.turns) == 1


async def test_a_sandbox_without_a_loopback_says_so():
    backend = LocalBackend(min_level=1, max_level=1)
    try:
        await backend.capabilities()
    except SetupError as error:
        await backend.close()
        pytest.skip(str(error))
    async with backend:
        record = await rolled(made("", backend=backend))
    assert (record.errors[0].type, record.errors[0].side) == ("SandboxError", "sandbox")
    assert "tunnel" in record.errors[0].message


async def test_a_sandbox_that_cannot_be_had_ends_the_run_before_it_begins():
    env = vf.AgentEnv("true", dataset=[{"question": "?"}], unsafe=True, sandbox=SandboxSpec(image="debian:13"))
    with pytest.raises(vf.NoSandboxError, match="debian:13"):
        await rolled(env)


async def test_a_cancelled_rollout_leaves_no_sandbox():
    asked, sandboxes = asyncio.Event(), []

    class Watched(vf.AgentEnv):
        async def setup_state(self, state):
            state = await super().setup_state(state)
            sandboxes.append(self.sandbox_of(state))
            return state

    async def says(request):
        asked.set()
        await asyncio.sleep(250)

    env = made("ask([user(task)])", env=Watched)
    running = asyncio.ensure_future(rolled(env, says))
    async with asyncio.timeout(120):
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [sandbox.is_closed for sandbox in sandboxes] == [True]
    await env.teardown()


async def test_rollouts_side_by_side_have_keys_and_records_of_their_own():
    body = """
messages = [user(task)]
messages.append(ask(messages))
messages.append(user("again"))
print(ask(messages)["content"], os.environ["OPENAI_API_KEY"])
"""
    rows = [{"question": f"q{n}", "answer": str(n)} for n in range(6)]

    def says(request):
        return f"{request.messages[0].content}-{len(request.messages)}"

    env = made(body, dataset=rows)
    results = await env.evaluate(vf.ScriptedClient(says), "big", state_columns=["agent_stdout"])
    await env.teardown()
    said = [record.state_columns["agent_stdout"].split() for record in results.records]
    assert [words[0] for words in said] == [f"q{n}-3" for n in range(6)]
    assert len({words[1] for words in said}) == 6
    assert [[m["content"] for m in record.messages] for record in results.records] == [
        [f"q{n}-1", "again", f"q{n}-3"] for n in range(6)
    ]


@pytest.mark.local_model
async def test_a_real_server_answers_counts_and_says_when_its_context_is_full():
    pytest.importorskip("xllamacpp")
    body = """
messages = [user(task)]
messages.append(ask(messages, max_tokens=8))
status, answer = post("/v1/chat/completions", {"messages": messages + [user("word " * 3000)]})
print(status, answer["error"]["code"])
ask(messages + [user("In one word?")], max_tokens=8)
"""
    async with vf.LocalModel(slots=1) as model:
        results = await made(body).evaluate(
            vf.ClientConfig(api_base_url=model.base_url), model.model, state_columns=COLUMNS
        )
    (record,) = results.records
    assert output(record) == "400 context_length_exceeded\n"
    assert (record.stop_condition, len(record.turns), record.errors) == ("agent_ended", 2, [])
    assert 2 <= record.usage.completion <= 16


@pytest.mark.skipif(CONTAINER_HOST is None, reason="VF_TEST_CONTAINER_HOST names no container engine")
async def test_an_agent_in_a_podman_container_without_a_network_reaches_its_model():
    body = """
messages = [user(task)]
for n in range(2):
    messages.append(ask(messages))
    messages.append(user("go on"))
open("made.txt", "w").write("x")
"""
    async with PodmanBackend(image=CONTAINER_IMAGE, host=CONTAINER_HOST) as backend:
        record = await rolled(made(body, backend=backend, keep_files=["made.txt"]))
        assert (record.errors, record.stop_condition, len(record.turns)) == ([], "agent_ended", 2)
        assert record.state_columns["agent_files"] == {"made.txt": "x"}
        late = await rolled(made("ask([user(task)]); time.sleep(60)", backend=backend, timeout_s=4.0))
    assert (late.stop_condition, late.errors, len(late.turns)) == ("timeout_reached", [], 1)


# Agents of others


@pytest.mark.slow
async def test_mini_swe_agent_solves_a_task_in_its_sandbox():
    """The package itself: in a sandbox where it is installed here, else another interpreter's as a plain process."""
    python = os.environ.get("VF_TEST_MINI_SWE_AGENT_PYTHON")
    if find_spec("minisweagent") is not None:
        python, backend = "python3", await sandboxes_or_skip(packages=True)
    elif python is None:
        pytest.skip("mini-swe-agent is not installed; set VF_TEST_MINI_SWE_AGENT_PYTHON to a Python that has it")
    else:
        backend = LocalBackend(unsafe=True, max_level=0)
    steps = iter(
        [
            "cat numbers.txt",
            "python3 -c \"print(sum(map(int, open('numbers.txt'))))\" > total.txt; cat total.txt",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        ]
    )

    def says(request):
        assert [tool.name for tool in request.tools] == ["bash"]
        call = vf.ToolCall(f"c{len(request.messages)}", "bash", json.dumps({"command": next(steps)}))
        return {"content": "I look.", "tool_calls": [call]}

    variables = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }

    async def right(state) -> float:
        return float(state["agent_files"].get("total.txt") == "42\n")

    async with backend:
        env = vf.AgentEnv(
            f'{python} -m minisweagent.run.mini -y --exit-immediately -l 0 -m "openai/$OPENAI_MODEL" '
            '-t "$(cat "$VF_PROMPT_FILE")" -o run.json',
            backend=backend,
            sandbox=SandboxSpec(
                files={"numbers.txt": b"1\n2\n39\n"}, env=variables, limits=SandboxLimits(memory_mb=2048, processes=128)
            ),
            keep_files=["total.txt"],
            dataset=[{"question": "Write the sum of the numbers in numbers.txt to total.txt.", "answer": "42"}],
            rubric=vf.Rubric([right]),
            timeout_s=240,
        )
        record = await rolled(env, says)
    assert record.errors == [], record.state_columns["agent_stderr"]
    assert (record.reward, record.stop_condition, len(record.turns)) == (1.0, "agent_ended", 3)
    assert [turn.prompt for turn in record.turns] == [None] * 3
    assert all(turn.tokens.prefix_length for turn in record.turns[1:])


async def test_a_tunnel_that_closes_its_output_and_stays_is_not_waited_for():
    async with LocalBackend() as backend, await backend.create() as sandbox:
        tunnel = AgentTunnel(await sandbox.open_process("exec >&-; sleep 250"))
        with pytest.raises(SandboxError, match="closed its output, and goes on running"):
            async with asyncio.timeout(120):
                await tunnel.serve(always)
        await tunnel.close()


def test_the_tunnels_program_needs_nothing_but_the_standard_library():
    source = (Path(vf.__file__).parent / "envs" / "agent_tunnel_worker.py").read_text()
    found = {line.split()[1].partition(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert found <= sys.stdlib_module_names


# Classic names


class Classic(vf.CliAgentEnv):
    """As an environment of before: set-up by the sandbox's client, and a measure taken in `post_rollout`."""

    async def get_docker_image(self, state):
        return "python:3.12-slim"

    async def build_env_vars(self, state):
        return {**await super().build_env_vars(state), "WORD": state["answer"]}

    async def post_sandbox_setup(self, state):
        await self.upload_content(state["sandbox_id"], agent(state["info"]["agent"]), "agent.py")

    async def post_rollout(self, state):
        result = await self.sandbox_client.execute_command(state["sandbox_id"], "cat made.txt")
        state["found"] = result.stdout


def classic(body, **options):
    async def found(state, answer) -> float:
        return float(state["found"] == answer)

    rows = [{"question": "?", "answer": "5", "info": {"agent": body}}]
    rubric = vf.Rubric([found])
    return Classic(
        "python3 agent.py", interception_port=1234, timeout_seconds=60, dataset=rows, rubric=rubric, **options
    )


async def test_an_environment_written_for_the_classic_class_runs():
    async with await sandboxes_or_skip() as backend:
        env = classic("ask([user(task)]); open('made.txt', 'w').write(os.environ['WORD'])", backend=backend)
        record = await rolled(env)
        assert (record.reward, record.stop_condition, len(record.turns)) == (1.0, "agent_completed", 1)
        assert (record.metrics["agent_error"], record.metrics["agent_timeout"]) == (0.0, 0.0)
        assert (env.active_sandboxes, env._rollouts) == (set(), {})
        crashed = await rolled(classic("ask([user(task)]); sys.exit(2)", backend=backend))
        assert (crashed.reward, crashed.metrics["agent_error"]) == (0.0, 1.0)


async def test_a_sandbox_that_is_kept_for_scoring_is_there_when_the_rubric_is_asked():
    kept = []

    async def seen(state) -> float:
        kept.append(state["sandbox_id"])
        return float((await env.sandbox_client.execute_command(state["sandbox_id"], "cat made.txt")).stdout == "x")

    async with await sandboxes_or_skip() as backend:
        env = classic(
            "ask([user(task)]); open('made.txt', 'w').write('x')", backend=backend, keep_sandbox_for_scoring=True
        )
        env.rubric = vf.Rubric([seen])
        record = await rolled(env)
        assert record.reward == 1.0
        with pytest.raises(vf.SandboxError):
            await env.sandbox_client.sandbox(kept[0])  # the environment's end took it along
