"""`OpenEnvEnv` over the protocol: with a server of the OpenEnv package where there is one, and with a plain one."""

import asyncio
import gc
import socket
import time
from contextlib import closing

import pytest
from openenv_servers import Options, PlainServer, RealHost, interpreter
from waiting import steady

import verifiers as vf
from verifiers.adapters import openenv_session
from verifiers.adapters.openenv_actions import action_in, expected, tool_answer, worded
from verifiers.adapters.openenv_session import OpenEnvServer


@pytest.fixture(scope="module")
def real_host():
    if interpreter() is None:
        pytest.skip("needs the package 'openenv-core' here, or in the interpreter that VF_TEST_OPENENV_PYTHON names")
    host = RealHost()
    yield host
    host.stop()


@pytest.fixture(params=["plain", "real"])
def serve(request, tmp_path):
    """Starts a server of the kind asked for; what happens there is in the file `log`."""
    log, running = str(tmp_path / "log"), []
    if request.param == "real":
        host = request.getfixturevalue("real_host")
        yield lambda **options: host.serve(Options(log=log, **options))
        return

    def start(**options):
        running.append(PlainServer(log=log, **options))
        return running[-1].url

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def plain(tmp_path):
    server = PlainServer(log=str(tmp_path / "log"))
    yield server.url
    server.stop()


def env_at(url, **options):
    given = {"num_train_examples": 3, "num_eval_examples": 2, "base_url": url, "startup_timeout_seconds": 0.0}
    return vf.OpenEnvEnv(**{**given, **options})


def play(env, replies, n=1, **options):
    return env.evaluate_sync(vf.ScriptedClient(replies), "m", num_examples=n, **options)["outputs"]


def call(*calls):
    made = [vf.ToolCall(id=f"c{i}", name=name, arguments=text) for i, (name, text) in enumerate(calls)]
    return vf.AssistantMessage("", tool_calls=made)


def told(output, role="user"):
    return [m["content"] for m in output["completion"] if m["role"] == role]


def lines(tmp_path):
    log = tmp_path / "log"
    return log.read_text().split("\n")[:-1] if log.exists() else []


# Rows


def test_a_row_is_an_episode_with_a_seed_of_its_own(serve):
    env = env_at(serve(), seed=5)
    assert [row["info"]["seed"] for row in env.train_rows()] == [5, 6, 7]
    assert [row["info"]["seed"] for row in env.eval_rows()] == [8, 9]
    (shown,) = env.train_rows(1)[0]["prompt"]
    observation, _, instruction = shown["content"].partition("\n\n")
    assert observation == "Episode 5. Guess from 1 to 9."
    assert instruction == "Each reply is your next action: reply with the number alone (integer)."


def test_the_same_seed_gives_the_same_rows(serve):
    url = serve()
    assert env_at(url).train_rows() == env_at(url).train_rows()


def test_rows_hold_no_session_open(serve, tmp_path):
    env_at(serve()).train_rows()
    assert lines(tmp_path) == ["opened", "closed"]


def test_a_system_prompt_leads_the_observation(plain):
    roles = [m["role"] for m in env_at(plain, system_prompt="You guess.").eval_rows(1)[0]["prompt"]]
    assert roles == ["system", "user"]


# Playing


def test_the_rewards_of_the_steps_are_summed_until_the_episode_is_over(serve):
    (output,) = play(env_at(serve(), seed=0), ["<think>low</think>1", "7", "4", "9"])
    assert told(output) == ["Too low.", "Too high.", "Right."]
    assert output["reward"] == 0.5
    assert output["stop_condition"] == "openenv_done"


def test_an_action_may_be_json_and_fenced(serve):
    (output,) = play(env_at(serve(), seed=0), ['{"number": 3}', '```json\n{"number": 4}\n```'])
    assert output["reward"] == 0.75


def test_the_last_step_of_an_episode_that_is_cut_is_taken(serve):
    (output,) = play(env_at(serve(), seed=0, max_turns=2), ["1", "2"])
    assert output["reward"] == -0.5
    assert output["stop_condition"] == "max_turns_reached"


def test_each_turn_keeps_what_its_step_gave(plain):
    results = env_at(plain, seed=0).evaluate_sync(vf.ScriptedClient(["1", "4"]), "m", num_examples=1)
    assert [turn.reward for turn in results.records[0].turns] == [-0.25, 1.0]


def test_a_reply_that_is_no_action_is_told_to_the_model_and_costs_a_turn(serve):
    replies = ["four", '{"number": "x"}', '{"guess": 4}', "-1", "4"]
    (output,) = play(env_at(serve(), seed=0), replies)
    first, second, third, fourth, _ = told(output)
    assert first == "That is no action: reply with the number alone (integer)"
    assert second.startswith("That is no action: number: Input should be a valid integer")
    assert third == first
    assert fourth == "That is no action: number: Input should be greater than or equal to 0"
    assert output["reward"] == 1.0
    assert output["metrics"]["num_turns"] == 5


def test_an_own_action_parser_and_renderer_are_used(serve):
    seen = []

    def render(observation, context, seed):
        seen.append((context, seed))
        return [vf.SystemMessage("Words only."), vf.UserMessage(observation["text"].upper())]

    words = {"four": {"number": 4}, "one": {"number": 1}}
    env = env_at(serve(), seed=0, action_parser=lambda text: words[text], prompt_renderer=render)
    (output,) = play(env, ["one", "ten", "four"])
    assert [m["content"] for m in output["prompt"]] == ["Words only.", "EPISODE 3. GUESS FROM 1 TO 9."]
    assert told(output)[:2] == ["TOO LOW.", "That is no action: 'ten'"]
    assert output["reward"] == 0.75
    assert ("reset", 3) in seen and ("step", 3) in seen


@pytest.mark.parametrize("shown", [None, [], "", [{"role": "user", "content": None}]])
def test_a_renderer_that_says_nothing_is_refused(plain, shown):
    with pytest.raises(vf.ConfigError, match=r"prompt_renderer returned .* it returns text, or messages"):
        env_at(plain, prompt_renderer=lambda observation: shown).train_rows()


def test_a_reset_that_its_seed_does_not_fix_is_shown_as_it_is_now(serve):
    env = env_at(serve(is_seeded=False), system_prompt="You guess.")
    rows = env.eval_rows(1)
    (output,) = play(env, ["4"])
    assert [m["role"] for m in output["prompt"]] == ["system", "user"]
    assert output["prompt"][-1]["content"] != rows[0]["prompt"][-1]["content"]


async def test_the_state_of_an_episode_can_be_asked_for(serve):
    class Counting(vf.OpenEnvEnv):
        async def post_rollout(self, state):
            state["steps"] = (await state["openenv_session"].state())["step_count"]

    env = Counting(base_url=serve(), num_eval_examples=1, seed=0)
    results = await env.evaluate(vf.ScriptedClient(["5", "2"]), "m", state_columns=["steps"])
    assert results["outputs"][0]["steps"] == 2


# Tools


def test_the_tools_of_an_environment_are_offered_and_their_rewards_summed(serve):
    env = env_at(serve(kind="tools"))
    client = vf.ScriptedClient([call(("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3, "b": 4}')), call(("finish", ""))])
    results = env.evaluate_sync(client, "m", num_examples=1)
    (output,) = results["outputs"]
    assert output["prompt"][-1]["content"] == "The environment is ready. Act by calling its tools."
    assert {tool["name"] for tool in client.requests[0].tools} == {"add", "fail", "draw", "finish"}
    assert told(output, "tool")[:2] == ["3", "7"]
    assert output["reward"] == 2.0
    assert output["stop_condition"] == "openenv_done"
    assert [turn.reward for turn in results.records[0].turns] == [1.0, 1.0]


def test_what_a_tool_refuses_is_told_to_the_model(serve):
    broken = [("fail", "{}"), ("nothing", "{}"), ("add", '{"a": '), ("add", "{}")]
    (output,) = play(env_at(serve(kind="tools")), [call(*broken), "I give up."])
    said = told(output, "tool")
    assert all(text.startswith("Error: ") for text in said), said
    assert "out of ink" in said[0] and "nothing" in said[1] and "Missing required argument" in said[3]
    assert output["reward"] == 0.0
    assert output["stop_condition"] == "mcp_no_tool_calls"


def test_an_image_of_a_tool_is_shown(serve):
    (output,) = play(env_at(serve(kind="tools")), [call(("draw", "{}")), "A dot."])
    ((part,),) = told(output, "tool")
    assert part["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_calls_after_the_end_of_the_episode_are_not_made(serve):
    (output,) = play(env_at(serve(kind="tools")), [call(("finish", "{}"), ("add", '{"a": 1, "b": 1}'))])
    assert output["reward"] == 1.0


# Failures


def test_a_step_that_fails_is_a_failure_of_the_environment_and_no_score(serve):
    results = env_at(serve(), seed=0).evaluate_sync(vf.ScriptedClient(["13"]), "m", num_examples=1)
    (record,) = results.records
    assert record.reward is None
    assert record.errors[0].side == "environment"
    assert "failed in 'step': the dice fell off the table (EXECUTION_ERROR)" in record.errors[0].message


def test_an_action_that_makes_the_server_end_the_session_is_no_score(real_host):
    env = env_at(real_host.serve(Options()), seed=0)
    (record,) = env.evaluate_sync(vf.ScriptedClient(["666"]), "m", num_examples=1).records
    assert record.reward is None
    assert "SESSION_ERROR" in record.errors[0].message


def test_an_environment_that_gives_no_rewards_is_not_scored_0(serve):
    results = env_at(serve(is_paid=False), seed=0).evaluate_sync(vf.ScriptedClient(["4"]), "m", num_examples=1)
    (record,) = results.records
    assert record.reward is None
    assert record.scores[0].status == "undecided"
    assert record.scores[0].reason == "the environment gave no reward in any of its 1 steps"


@steady(0.5)
def test_an_answer_that_does_not_come_is_no_score(serve):
    env = env_at(serve(), seed=0, message_timeout_s=1.5)
    (record,) = env.evaluate_sync(vf.ScriptedClient(["77"]), "m", num_examples=1).records
    assert record.reward is None
    assert "did not answer 'step' within 1.5 s" in record.errors[0].message


def test_a_server_that_ends_during_a_rollout_is_no_score(tmp_path):
    server = PlainServer()
    env = env_at(server.url, seed=0)

    def end(request):
        server.stop()
        return "1"

    (record,) = env.evaluate_sync(vf.ScriptedClient(end), "m", num_examples=1).records
    assert record.reward is None
    assert "closed the session before it answered 'step'" in record.errors[0].message


def test_a_server_that_is_not_there_is_named():
    with closing(socket.socket()) as held:  # nobody listens there, and nobody else is given it meanwhile
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(vf.SetupError, match=f"no OpenEnv server answers at {address}.* Is it running"):
            env_at(address).train_rows()


def test_a_server_that_is_still_starting_is_waited_for(tmp_path):
    async def late():
        with closing(socket.socket()) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(("127.0.0.1", 0))
            return await started_late(held.getsockname()[1])

    async def started_late(port):
        server = OpenEnvServer(f"ws://127.0.0.1:{port}/ws", start_timeout_s=120, start_poll_s=0.05)
        opening = asyncio.create_task(server.begin(3))
        await asyncio.sleep(0.3)
        assert not opening.done()
        started = await asyncio.to_thread(PlainServer, port=port)
        session, step, _ = await opening
        await session.close()
        await asyncio.to_thread(started.stop)
        return step.observation["text"]

    assert asyncio.run(late()).startswith("Episode 3.")


def test_another_kind_of_server_is_told_from_one_of_openenv(serve):
    url = serve()
    with pytest.raises(vf.SetupError, match=r"/elsewhere/ws answers HTTP 40\d: no OpenEnv server"):
        env_at(f"{url}/elsewhere").train_rows()


def test_a_project_without_its_server_says_what_waits_for_sandboxes_and_what_to_do():
    env = vf.OpenEnvEnv(openenv_project="proj", prompt_renderer=lambda observation: "x")
    with pytest.raises(vf.NotHere, match=r"does not start the container.*uv run --project proj server.*base_url="):
        env.train_rows()


def test_where_the_server_is_can_be_set_on_an_environment_of_others(serve):
    env = vf.OpenEnvEnv(openenv_project="proj", num_train_examples=1, num_eval_examples=1, seed=0)
    env.set_kwargs(base_url=serve())
    (output,) = play(env, ["2"])
    assert output["reward"] == 1.0  # seed 1


@pytest.mark.parametrize(
    "wrong",
    [{"num_train_examples": 0, "num_eval_examples": 0}, {"contract": "soap"}],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(vf.ConfigError):
        env_at("http://127.0.0.1:1", **wrong)


def test_an_address_that_is_none_is_refused():
    with pytest.raises(vf.ConfigError, match="is no base URL"):
        env_at("ftp://somewhere").train_rows()


# Sessions


def test_a_session_is_closed_when_its_rollout_ends_well_or_badly(serve, tmp_path):
    env = env_at(serve(), seed=0)
    play(env, ["4"])
    play(env, ["13"])
    assert lines(tmp_path).count("opened") == lines(tmp_path).count("closed") == 3  # with the one for the rows


def test_a_server_that_does_not_end_a_session_in_time_is_hung_up_on(serve, monkeypatch):
    monkeypatch.setattr(openenv_session, "CLOSE_LIMIT_S", 0.1)
    env = env_at(serve(), seed=0, message_timeout_s=1.0)
    (record,) = env.evaluate_sync(vf.ScriptedClient(["77"]), "m", num_examples=1).records
    assert record.reward is None
    del env
    gc.collect()  # an unclosed connection would warn, and warnings are errors


def test_a_cancelled_rollout_closes_its_session(serve, tmp_path):
    async def cancelled():
        env = env_at(serve(), seed=0)
        asked = asyncio.Event()

        async def never(request):
            asked.set()
            await asyncio.sleep(250)

        running = asyncio.create_task(env.rollout(env.eval_rows(1)[0], vf.ScriptedClient(never), "m", {}))
        await asyncio.wait_for(asked.wait(), 100)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert lines(tmp_path).count("opened") == lines(tmp_path).count("closed") == 2


def test_more_rollouts_than_the_server_takes_sessions_wait_for_each_other(serve, tmp_path):
    env = env_at(serve(max_sessions=1), num_eval_examples=6, seed=0, max_turns=2)
    outputs = play(env, lambda request: "5", n=6)
    assert len(outputs) == 6
    assert all(output["error"] is None for output in outputs)
    open_now = most = 0
    for line in lines(tmp_path):
        open_now += {"opened": 1, "closed": -1}.get(line, 0)
        most = max(most, open_now)
    assert most == 1


def test_sessions_of_others_are_waited_for(serve):
    async def both(url):
        first, second = OpenEnvServer(url), OpenEnvServer(url)
        held, _, _ = await first.begin(1)
        waiting = asyncio.create_task(second.begin(2))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await held.close()
        session, _, waited_s = await asyncio.wait_for(waiting, 100)
        await session.close()
        return waited_s

    assert asyncio.run(both(serve(max_sessions=1))) > 0.2


@steady(0.3)
def test_a_model_that_thinks_for_longer_than_the_server_waits_for_a_ping_keeps_its_session(serve):
    async def think(request):
        await asyncio.sleep(4)
        return "4"

    (output,) = play(env_at(serve(ping_s=2.0), seed=0, message_timeout_s=3.0), think)
    assert output["reward"] == 1.0


@steady(0.3)
def test_queueing_for_a_session_counts_against_no_time_limit(serve):
    env = env_at(serve(max_sessions=1), num_eval_examples=3, seed=0, timeout_s=2.0)

    async def think(request):
        await asyncio.sleep(0.9)
        return str((int(request.messages[0]["content"].split()[1].strip(".")) % 9) + 1)

    began = time.monotonic()
    outputs = play(env, think, n=3)
    assert time.monotonic() - began > 2.5
    assert [output["reward"] for output in outputs] == [1.0] * 3


# Actions and wording, in plain values

MOVE = {
    "properties": {
        "metadata": {"type": "object"},
        "kind": {"const": "move"},
        "to": {"$ref": "#/$defs/Side"},
        "why": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["to"],
    "$defs": {"Side": {"enum": ["left", "right"], "type": "string"}},
}


def one(kind):
    return {"properties": {"x": {"type": kind}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("text", "schema", "action"),
    [
        ("left", MOVE, {"to": "left"}),
        ('{"to": "left", "why": "so"}', MOVE, {"to": "left", "why": "so"}),
        ('```python\nprint("{}")\n```', one("string"), {"x": 'print("{}")'}),
        ('{"a": 1}', one("string"), {"x": '{"a": 1}'}),
        (" 2.5 ", one("number"), {"x": 2.5}),
        ("Yes", one("boolean"), {"x": True}),
        ("[1, 2]", one("array"), {"x": [1, 2]}),
        ('{"anything": 1}', {}, {"anything": 1}),
    ],
)
def test_actions_are_read_by_the_schema(text, schema, action):
    assert action_in(text, schema) == action


@pytest.mark.parametrize(
    ("text", "schema"),
    [("", one("string")), ("many", one("integer")), ("perhaps", one("boolean")), ("go left", {}), ("[1", one("array"))],
)
def test_what_is_no_action_is_refused(text, schema):
    with pytest.raises(ValueError, match="reply with"):
        action_in(text, schema)


def test_what_is_expected_names_the_fields_and_their_kinds():
    assert expected(MOVE) == 'reply with one JSON object: {"to": "left" or "right", "why": string, may be left out}'


def test_an_observation_with_one_text_is_that_text():
    assert worded({"board": "x..", "hint": None, "legal": []}) == "x.."
    assert worded({"board": "x..", "turn": 1}) == '{"board": "x..", "turn": 1}'


def test_a_tool_that_the_environment_cannot_reach_is_the_environments_failure():
    broken = {"tool_name": "add", "result": None, "error": {"error_type": "transport_error", "message": "pipe"}}
    with pytest.raises(vf.EnvironmentFault, match="does not reach its tool 'add': pipe"):
        tool_answer(broken)
