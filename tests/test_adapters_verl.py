"""An environment as verl's agent loop: its fields, and the package's own classes where it is installed."""

from types import SimpleNamespace
from typing import Any, Optional

import pytest
from letter_chat import END, Engine
from pydantic import BaseModel
from trainer_packages import parameters, run_definitions, source_of

import verifiers as vf
from verifiers.adapters import verl
from verifiers.errors import ConfigError, EnvironmentFault
from verifiers.rl.rollouts import EnvRollouts

PROMPT = [{"role": "user", "content": "abc"}]


class Twice(vf.MultiTurnEnv):
    """Asks once more."""

    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "z"}]


def reversed_last(completion, answer):
    if completion[-1]["content"] == "x":
        raise vf.Undecided("no word")
    return float(completion[-1]["content"] == answer)


class Servers(Engine):
    """verl's server manager."""

    stop_reason = "completed"

    async def generate(self, *, request_id, prompt_ids, sampling_params):
        ids, logprobs = await self.answer(prompt_ids, request_id=request_id, sampling=dict(sampling_params))
        limit = sampling_params["max_tokens"]
        return SimpleNamespace(token_ids=ids[:limit], log_probs=logprobs[:limit], stop_reason=self.stop_reason)


@pytest.fixture
def loop(monkeypatch):
    def make(reply, *, prompt_length=16, response_length=16, turns=2, **given):
        env = Twice(dataset=[{"question": "abc", "answer": "cba"}], rubric=vf.Rubric([reversed_last]), max_turns=turns)
        monkeypatch.setattr(verl, "_loaded", {})
        monkeypatch.setattr(verl, "EnvRollouts", lambda *_, **options: EnvRollouts(env, **options))
        rollout = SimpleNamespace(prompt_length=prompt_length, response_length=response_length)
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        servers = Servers(reply)
        trainer_config = SimpleNamespace(config=config)
        made = verl.EnvironmentAgentLoop(
            trainer_config, servers, servers.tokenizer, env="words", processor=None, **given
        )
        return made, servers

    return make


async def test_what_the_environment_said_between_the_replies_is_masked(loop):
    made, servers = loop(lambda question, number: "cba" if number else "aa")
    fields = await made.output({"temperature": 1.0}, PROMPT)
    text = servers.tokenizer.decode
    assert text(fields["prompt_ids"]) == "<user>abc<assistant>"
    assert text(fields["response_ids"]) == "aa<end><user>z<assistant>cba<end>"
    assert fields["response_mask"] == [1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
    assert fields["response_logprobs"] == [-0.25 * m for m in fields["response_mask"]]
    assert fields["reward_score"] == 1.0
    assert fields["num_turns"] == 4
    assert fields["extra_fields"]["reward_extra_info"] == {"reversed_last": 1.0, "num_turns": 2.0}


async def test_turns_of_a_rollout_share_a_request_id_and_never_ask_for_more_than_there_is_room(loop):
    made, servers = loop(lambda question, number: "cba", prompt_length=8, response_length=12)
    await made.output({"temperature": 0.7, "top_p": 1.0}, PROMPT)
    first, second = servers.asked
    assert first["request_id"] == second["request_id"]
    assert first["sampling"] == {"temperature": 0.7, "top_p": 1.0, "logprobs": True, "max_tokens": 20 - 5}
    assert second["prompt_ids"][: len(first["prompt_ids"])] == first["prompt_ids"]
    assert second["sampling"]["max_tokens"] == 20 - len(second["prompt_ids"])


async def test_a_response_is_no_longer_than_verl_has_room_for(loop):
    made, _ = loop(lambda question, number: "cba", response_length=6)
    fields = await made.output({}, PROMPT)
    assert [len(fields[name]) for name in ("response_ids", "response_mask", "response_logprobs")] == [6, 6, 6]


async def test_a_prompt_over_the_limit_names_the_setting(loop):
    made, _ = loop(lambda question, number: "cba", prompt_length=3)
    with pytest.raises(ConfigError, match=r"over rollout\.prompt_length = 3"):
        await made.output({}, PROMPT)


async def test_a_rollout_without_a_reward_is_an_error_or_a_stated_number_with_an_empty_mask(loop):
    made, _ = loop(lambda question, number: "x")
    with pytest.raises(EnvironmentFault, match=r"example 0 .* undecided: reversed_last: no word"):
        await made.output({}, PROMPT)
    made, _ = loop(lambda question, number: "x", unscored_reward=0.5)
    fields = await made.output({}, PROMPT)
    assert fields["reward_score"] == 0.5
    assert not any(fields["response_mask"])


async def test_an_aborted_reply_is_never_scored(loop):
    made, servers = loop(lambda question, number: "cba", max_retries=0)
    servers.stop_reason = "aborted"
    with pytest.raises(EnvironmentFault, match="broke off"):
        await made.output({}, PROMPT)


def test_rows_name_the_agent_and_keep_the_prompt():
    env = vf.SingleTurnEnv(dataset=[{"question": "abc", "answer": "cba"}], rubric=vf.Rubric([reversed_last]))
    (row,) = verl.rows(EnvRollouts(env), "words")
    assert (row["prompt"], row["agent_name"], row["extra_info"]) == (PROMPT, "words", {"index": 0})


# Against the package


AGENT_LOOP = "experimental/agent_loop/agent_loop.py"


async def test_the_installed_package_takes_what_a_loop_returns(loop):
    names = {"BaseModel": BaseModel, "Optional": Optional, "Any": Any}
    found = run_definitions(source_of("verl", AGENT_LOOP), ["AgentLoopMetrics", "AgentLoopOutput"], names)
    made, _ = loop(lambda question, number: "cba")
    fields = await made.output({}, PROMPT)
    output = found["AgentLoopOutput"]
    output.model_rebuild(_types_namespace=found)
    assert fields.keys() <= output.model_fields.keys()
    assert fields["metrics"].keys() <= found["AgentLoopMetrics"].model_fields.keys()
    built = output(**fields)
    assert built.response_ids[-1] == END and built.metrics.generate_sequences > 0


def test_the_installed_package_makes_and_runs_a_loop_as_ours_is_made():
    module = source_of("verl", AGENT_LOOP)
    assert parameters(module, "AgentLoopBase", "run") == ["sampling_params"]
    assert {"trainer_config", "server_manager", "tokenizer"} <= set(parameters(module, "AgentLoopBase", "__init__"))
    servers = source_of("verl", "workers/rollout/llm_server.py")
    for name in ("LLMServerClient",):
        assert {"request_id", "prompt_ids", "sampling_params"} <= set(parameters(servers, name, "generate"))
