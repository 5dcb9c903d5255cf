"""Start-up: a server is asked what it can do, and what it lacks is named with the option that mends it."""

from __future__ import annotations

import pytest
from inference_servers import FakeInference

from verifiers.errors import SetupError
from verifiers.rl.admin import AdminError, AdminLink
from verifiers.rl.inference import InferencePool
from verifiers.rl.probe import ServerReport, are_processed, own_defaults, probe

pytestmark = pytest.mark.timeout(200)


async def probed(server: FakeInference, model: str = "m") -> ServerReport:
    link = AdminLink(server.url)
    try:
        return await probe(link, model)
    finally:
        await link.close()


async def test_a_server_that_has_it_all_is_described():
    async with FakeInference() as server:
        report = await probed(server)
    assert report.can_train, report.problems
    assert (report.models, report.max_model_len, report.dialect) == (("m",), 4096, "vllm")
    assert (report.gives_token_ids, report.has_token_routes, report.processed_logprobs) == (True, True, True)
    assert (report.engine, report.has_extension, report.version) == ("VerifiersEngine", True, "default")
    assert report.own_defaults == ()


@pytest.mark.parametrize(
    "lack, option",
    [
        ({"processed": False}, "--logprobs-mode processed_logprobs"),
        ({"scale_out": False}, "--enable-scale-out"),
        ({"token_ids": False}, "vLLM does from 0.10.2 on"),
        ({"transfer": False}, "--weight-transfer-config"),
        ({"model": "other"}, "--served-model-name m"),
        ({"dialect": "none"}, "VLLM_SERVER_DEV_MODE=1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_is_lacking_is_named_with_its_option_before_anything_starts(lack, option):
    async with FakeInference(**lack) as server, FakeInference() as good:
        pool = InferencePool([server.url, good.url], model="m")
        with pytest.raises(SetupError) as told:
            await pool.start()
    (line,) = [line for line in str(told.value).splitlines() if option in line]
    assert server.url in line
    assert good.url not in str(told.value)


async def test_a_server_that_is_not_there_is_named():
    async with FakeInference() as good:
        pool = InferencePool(["http://127.0.0.1:9/v1", good.url], model="m")
        with pytest.raises(SetupError, match=r"http://127\.0\.0\.1:9/v1: .*connection refused"):
            await pool.start()


async def test_an_unhealthy_server_is_no_server():
    async with FakeInference() as server:
        server.faults["/health"] = [(503, "loading")]
        with pytest.raises(AdminError, match="/health answered 503"):
            await probed(server)


async def test_a_server_that_was_left_paused_goes_on():
    async with FakeInference() as server:
        server.is_paused = True
        report = await probed(server)
        assert report.was_paused
        assert not server.is_paused


async def test_defaults_from_the_model_s_files_are_seen():
    async with FakeInference(own_temperature=0.6) as server:
        assert (await probed(server)).own_defaults == ("temperature 0.6",)


async def test_a_probe_changes_nothing():
    async with FakeInference() as server:
        await probed(server)
        assert (server.version, server.is_updating, server.is_paused) == ("default", False, False)
        assert set(server.admin_asked()) == {"/collective_rpc", "/finish_weight_update"}


def choice(*logprobs: float) -> dict:
    return {"logprobs": {"top_logprobs": [{str(i): value for i, value in enumerate(logprobs)}]}}


@pytest.mark.parametrize(
    "hot, cold, processed",
    [
        (choice(-0.5, -1.5), choice(-0.01, -4.01), True),
        (choice(-0.5, -1.5), choice(-0.5, -1.5), False),
        (choice(-0.7, -0.7), choice(-0.7, -0.7), None),  # equally likely at each temperature
        (choice(-0.5), choice(-0.5), None),
        ({}, {}, None),
        (choice(-0.5, -9999.0), choice(-0.5, -9999.0), None),
    ],
)
def test_the_temperature_is_seen_in_the_gap_between_two_tokens(hot, cold, processed):
    assert are_processed(hot, cold) is processed


def test_tokens_that_a_default_rules_out_are_missed():
    assert own_defaults(choice(-0.5, -1.5, -2.5), choice(-0.5, -1.5, -9999.0)) == ("top_k, top_p or min_p",)
