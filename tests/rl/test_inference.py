"""The pool: where a problem goes, who leaves and who comes back, and new weights in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, ExitStack

import pytest
from inference_servers import FakeInference
from waiting import steady, until

from verifiers.clients import Endpoint, HTTPClient, ModelRequest
from verifiers.clients.tokens import GENERATE, read_generated
from verifiers.errors import ConfigError, ModelUnavailableError
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.rl.inference import InferencePool, UpdateError
from verifiers.rl.metrics import read_load
from verifiers.rl.sampling import training_sampling
from verifiers.rl.weights import FolderWeights

WEIGHTS = FolderWeights("/weights/step")
LONG_S = 3600.0  # a watch that does not come round: the tests look themselves
pytestmark = pytest.mark.timeout(200)


@pytest.fixture
async def servers():
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeInference()) for _ in range(3)]


def pool_of(servers, **more) -> InferencePool:
    return InferencePool([server.url for server in servers], model="m", **{"watch_s": LONG_S} | more)


def urls(pool: InferencePool) -> set[str]:
    return {server.url for server in pool.serving}


# --- where a problem goes -------------------------------------------------------------------------------------------


async def test_in_turn_each_server_gets_as_many(servers):
    async with pool_of(servers, routing="round_robin") as pool:
        counts = Counter(pool.endpoint_for("p").base_url for _ in range(30))
    assert counts == {server.url: 10 for server in servers}


async def test_the_least_loaded_gets_the_next_group(servers):
    async with pool_of(servers) as pool:
        stack = ExitStack()
        for _ in range(30):
            stack.enter_context(pool.group("p", rollouts=8))
        assert [server.rollouts for server in pool.servers] == [80, 80, 80]
        stack.close()
        assert [server.rollouts for server in pool.servers] == [0, 0, 0]


async def test_load_that_others_make_is_seen_on_the_metrics_page(servers):
    servers[0].running = servers[1].running = 50
    async with pool_of(servers) as pool:
        await pool.look()
        assert {pool.endpoint_for("p").base_url for _ in range(5)} == {servers[2].url}


async def test_between_two_looks_what_was_handed_out_counts(servers):
    servers[0].running = 20
    async with pool_of(servers) as pool:
        await pool.look()
        counts = Counter(pool.endpoint_for("p", rollouts=8).base_url for _ in range(30))
        assert max(counts.values()) - min(counts.values()) <= 3, "else all would run to one until the next look"
        assert counts[servers[0].url] == min(counts.values())


async def test_a_problem_keeps_its_server_and_only_those_of_a_dead_one_move(servers):
    problems = [f"env/{i}" for i in range(300)]
    async with pool_of(servers, routing="sticky") as pool:
        before = {problem: pool.endpoint_for(problem).base_url for problem in problems}
        assert before == {problem: pool.endpoint_for(problem).base_url for problem in problems}
        assert min(Counter(before.values()).values()) > 60
        pool.servers[0].out = "gone"
        after = {problem: pool.endpoint_for(problem).base_url for problem in problems}
    moved = {problem for problem in problems if before[problem] != after[problem]}
    assert moved == {problem for problem in problems if before[problem] == servers[0].url}
    assert len({after[problem] for problem in moved}) == 2


async def test_what_a_group_gets_is_a_description_of_one_server_by_which_it_can_be_asked(servers):
    async with pool_of(servers) as pool:
        endpoint = pool.endpoint_for("p")
        request = GroupRequest(
            spec=EnvSpec(env_id="e"), row={}, group_id="g", tries=1, endpoint=endpoint, model="m", sampling={}
        )
    assert isinstance(request.endpoint, Endpoint)
    assert (request.endpoint.dialect, len(request.endpoint.all_replicas)) == ("tokens", 1)


async def test_an_empty_pool_tells_why_each_server_is_out(servers):
    async with pool_of(servers) as pool:
        for server in pool.servers:
            server.out = "it burns"
        with pytest.raises(ModelUnavailableError, match=f"{servers[1].url}: it burns"):
            pool.endpoint_for("p")


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"servers": []}, "it is empty"),
        ({"servers": ["http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/"]}, "twice"),
        ({"routing": "best"}, "routing is one of round_robin, least_loaded, sticky; got 'best'"),
        ({"admin": "sglang"}, "admin is one of vllm, report, rpc; got 'sglang'"),
    ],
)
def test_a_wrong_setting_is_named(wrong, told):
    with pytest.raises(ConfigError, match=told):
        InferencePool(**{"servers": ["http://127.0.0.1:1/v1"], "model": "m"} | wrong)


# --- new weights ----------------------------------------------------------------------------------------------------


async def test_an_update_reaches_all_servers_and_tells_how_long_each_stood_still(servers):
    async with pool_of(servers) as pool:
        report = await pool.update(1, WEIGHTS)
        assert pool.version == 1
    assert set(report.updated) == set(report.paused_s) == {server.url for server in servers}
    assert report.failed == {}
    assert all(0 < seconds <= report.seconds for seconds in report.paused_s.values())
    assert [(s.version, s.is_paused) for s in servers] == [("1", False)] * 3


async def test_from_the_start_tokens_carry_version_0(servers):
    async with pool_of(servers) as pool:
        assert pool.version == 0
    assert [server.version for server in servers] == ["0"] * 3


@pytest.mark.parametrize("dialect", ["vllm", "rpc"])
async def test_a_reply_that_is_being_made_goes_on_under_the_new_weights(dialect):
    async with FakeInference(dialect=dialect) as server, pool_of([server]) as pool:
        client = HTTPClient(pool.endpoint_for("p"))
        body = {"token_ids": [1], "sampling_params": {"max_tokens": 200}}
        asking = asyncio.create_task(client.send(GENERATE, body, read_generated, ModelRequest("m", [])))
        await until(lambda: server.asked.count(GENERATE) == 2, by=asking)
        await asyncio.sleep(0.1)
        await pool.update(1, WEIGHTS)
        made, _, _ = await asking
        await client.close()
    assert [span.version for span in made.versions] == ["0", "1"]
    assert (made.versions[0].start, made.versions[-1].end) == (0, len(made.ids)) == (0, 200)


@pytest.mark.parametrize("path", ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update"])
@pytest.mark.parametrize("fault", [(500, "it broke"), "reset"], ids=["refuses", "breaks off"])
async def test_one_that_fails_is_out_and_the_others_serve_the_new_weights(servers, path, fault):
    bad, *good = servers
    async with pool_of(servers) as pool:
        bad.faults[path] = [fault] * 4
        report = await pool.update(1, WEIGHTS)
        assert urls(pool) == {server.url for server in good} == set(report.updated)
        assert set(report.failed) == {bad.url}
        assert path in report.failed[bad.url]
        assert {pool.endpoint_for("p").base_url for _ in range(9)} == {server.url for server in good}
    assert not any(server.is_paused for server in servers)


@steady(0.1)
async def test_one_that_hangs_does_not_hold_up_the_others(servers):
    bad, *good = servers
    async with pool_of(servers, update_timeout_s=0.5) as pool:
        bad.faults["/update_weights"] = ["hang"] * 2
        bad.state = "torn"
        updating = asyncio.create_task(pool.update(1, WEIGHTS))
        await until(lambda: [s.version for s in good] == ["1", "1"], by=updating)
        assert not updating.done(), "the others were ready first"
        await updating
        assert urls(pool) == {server.url for server in good}
    assert not any(server.is_paused for server in servers)


async def test_a_refusal_by_all_leaves_the_old_weights_serving(servers):
    async with pool_of(servers) as pool:
        for server in servers:
            server.faults["/update_weights"] = [(500, "1 tensors are of another shape: x [3]")] * 2
        with pytest.raises(UpdateError, match=r"no server took the weights of version 1: .*another shape"):
            await pool.update(1, WEIGHTS)
        assert (pool.version, len(pool.serving)) == (0, 3)
        for server in servers:
            server.faults.clear()
        await pool.update(1, WEIGHTS)
        assert pool.version == 1
    assert [server.version for server in servers] == ["1"] * 3


async def test_torn_weights_make_no_tokens_that_pass_for_a_version_s(servers):
    bad = servers[0]
    async with pool_of(servers) as pool:
        bad.state = "torn"
        bad.faults["/update_weights"] = [(500, "connection lost")] * 2
        await pool.update(1, WEIGHTS)
        assert bad.url not in urls(pool)
    assert bad.version == "torn after 0"
    assert bad.aborts == 1
    order = [path for path in bad.admin_asked() if path in ("/abort_requests", "/resume")]
    assert order == ["/abort_requests", "/resume"], "nothing may be made between"


async def test_new_weights_whose_update_was_given_up_do_not_pass_for_the_old_ones(servers):
    """A server finishes what it has begun, whether anybody waits for it or not."""
    server = servers[0]
    async with pool_of([server]) as pool:
        server.load_s = 0.3
        updating = asyncio.create_task(pool.update(1, WEIGHTS))
        await until(lambda: server.loads == 1, by=updating, limit_s=10)
        updating.cancel()
        await asyncio.wait([updating])
        assert pool.serving == []
        assert server.version == "torn after 0"
        assert not server.is_paused
        await pool.update(1, WEIGHTS)
        assert len(pool.serving) == 1


async def test_a_server_that_comes_back_without_what_it_needs_stays_out_and_says_why(servers):
    dead = servers[0]
    async with pool_of(servers) as pool:
        await dead.__aexit__()
        for _ in range(3):
            await pool.look()
        async with FakeInference(port=dead.port, processed=False):
            await pool.look()
            assert len(pool.serving) == 2
            assert "--logprobs-mode processed_logprobs" in (pool.servers[0].out or "")


async def test_an_update_from_a_folder_that_breaks_off_is_tried_once_more(servers):
    async with pool_of(servers) as pool:
        servers[0].state = "torn"
        servers[0].faults["/update_weights"] = ["reset"]
        report = await pool.update(1, WEIGHTS)
        assert report.failed == {}
        assert len(pool.serving) == 3


async def test_weights_never_go_back(servers):
    async with pool_of(servers, version=0) as pool:
        await pool.update(2, WEIGHTS)
        with pytest.raises(ValueError, match="weights of version 1, but the servers have those of 2"):
            await pool.update(1, WEIGHTS)


async def test_a_cancelled_update_pauses_nobody(servers):
    async with pool_of(servers) as pool:
        servers[0].faults["/update_weights"] = ["hang"]
        updating = asyncio.create_task(pool.update(1, WEIGHTS))
        await until(lambda: "/update_weights" in servers[0].asked, by=updating)
        updating.cancel()
        await asyncio.wait([updating])
        assert pool.version == 0
        assert not any(server.is_paused for server in servers)


async def test_servers_at_the_version_of_a_resumed_run_are_taken_as_they_are(servers):
    for server in servers[:2]:
        server.version = "7"
    async with pool_of(servers, version=7) as pool:
        assert urls(pool) == {server.url for server in servers[:2]}
        assert "not 7; it waits for the next update" in (pool.servers[2].out or "")
        await pool.update(7, WEIGHTS)
        assert len(pool.serving) == 3


# --- coming and going -----------------------------------------------------------------------------------------------


async def test_a_server_that_dies_is_out_after_three_looks_and_one_hiccup_is_nothing(servers):
    async with pool_of(servers) as pool:
        servers[0].faults["/health"] = [(503, "busy")]
        for _ in range(3):
            await pool.look()
        assert len(pool.serving) == 3
        await servers[0].__aexit__()
        await pool.look()
        await pool.look()
        assert len(pool.serving) == 3
        await pool.look()
        assert urls(pool) == {server.url for server in servers[1:]}


async def test_a_restarted_server_is_let_back_with_the_current_weights(servers):
    dead = servers[0]
    async with pool_of(servers) as pool:
        await pool.update(1, WEIGHTS)
        await dead.__aexit__()
        for _ in range(3):
            await pool.look()
        async with FakeInference(port=dead.port) as again:
            await pool.look()
            assert again.url in urls(pool)
            assert again.version == "1"
            assert again.bodies["/update_weights"] == [{"update_info": {"folder": WEIGHTS.folder}}]


async def test_a_restarted_server_that_cannot_get_them_stays_out(servers):
    dead = servers[0]
    async with pool_of(servers) as pool:
        await pool.update(1, WEIGHTS)
        await dead.__aexit__()
        for _ in range(3):
            await pool.look()
        async with FakeInference(port=dead.port) as again:
            again.faults["/update_weights"] = [(500, "disk full")]
            await pool.look()
            assert again.url not in urls(pool)
            assert "disk full" in (pool.servers[0].out or "")
            await pool.look()
            assert again.url in urls(pool)


async def test_one_that_was_only_out_of_reach_is_let_back_without_an_update(servers):
    async with pool_of(servers) as pool:
        await pool.update(1, WEIGHTS)
        servers[0].faults["/health"] = [(503, "busy")] * 3
        for _ in range(3):
            await pool.look()
        assert servers[0].url not in urls(pool)
        await pool.look()
        assert servers[0].url in urls(pool)
        assert len(servers[0].bodies["/update_weights"]) == 1


async def test_a_server_that_answers_nothing_more_holds_up_no_update(servers):
    async with pool_of(servers) as pool:
        pool.servers[0].out = "it was gone"
        servers[0].faults["/v1/completions"] = ["hang"] * 3
        looking = asyncio.create_task(pool.look())
        await until(lambda: len(servers[0].bodies["/v1/completions"]) > 3, by=looking)
        async with asyncio.timeout(60):
            await pool.update(1, WEIGHTS)
        assert urls(pool) == {server.url for server in servers[1:]}
        looking.cancel()
        await asyncio.wait([looking])


async def test_a_server_that_is_still_loading_is_waited_for():
    async with FakeInference() as server:
        server.faults["/health"] = [(503, "loading")] * 3
        async with pool_of([server], watch_s=0.02, start_wait_s=30) as pool:
            assert len(pool.serving) == 1


async def test_the_watch_looks_by_itself(servers):
    async with pool_of(servers, watch_s=0.02) as pool:
        servers[0].faults["/health"] = [(503, "busy")] * 3
        await until(lambda: len(pool.serving) == 2)
        await until(lambda: len(pool.serving) == 3)


async def test_admin_requests_do_not_queue_behind_generations():
    async with FakeInference() as server, pool_of([server]) as pool:
        client = HTTPClient(Endpoint(server.url, dialect="tokens", max_connections=4))
        server.token_s = 0.05
        body = {"token_ids": [1], "sampling_params": {"max_tokens": 200}}
        tasks = [asyncio.create_task(client.send(GENERATE, body, bytes, ModelRequest("m", []))) for _ in range(64)]
        await until(lambda: server.asked.count(GENERATE) >= 5)
        async with asyncio.timeout(60):
            await pool.update(1, WEIGHTS)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await client.close()


# --- sampling -------------------------------------------------------------------------------------------------------


def test_sampling_says_aloud_what_a_model_s_files_might_say_otherwise():
    sampling = training_sampling({"max_tokens": 9, "temperature": 0.7, "extra_body": {"priority": 2}}, 4)
    assert (sampling["max_tokens"], sampling["temperature"], sampling["top_p"], sampling["logprobs"]) == (
        9,
        0.7,
        1,
        True,
    )
    assert sampling["extra_body"] == {
        "priority": 2,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "return_token_ids": True,
        "cache_salt": "4",
    }


CHANGING = ["top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens"]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("name", CHANGING)
def test_sampling_that_a_trainer_cannot_follow_is_refused(name, nested):
    changed = {name: 0.5}
    with pytest.raises(ConfigError, match=rf"sampling\.{name} = 0\.5"):
        training_sampling({"extra_body": changed} if nested else changed, 0)


def test_two_versions_share_no_prefix_cache():
    salts = {training_sampling({}, version)["extra_body"]["cache_salt"] for version in range(5)}
    assert len(salts) == 5


def test_the_metrics_of_all_engines_are_added_up():
    page = (
        '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\n'
        'vllm:num_requests_running{engine="1"} 4.0\nvllm:num_requests_waiting{engine="0"} 2.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\n'
        'vllm:num_preemptions_total{engine="0"} 5.0\nother_num_requests_running 99\n'
    )
    load = read_load(page)
    assert (load.requests, load.kv_cache_usage, load.preemptions) == (9.0, 0.75, 5.0)
    assert read_load("").requests == 0
