"""Pause, new weights, go on: each dialect with the bodies of its own, and no pause that stays."""

from __future__ import annotations

import asyncio

import pytest
from inference_servers import FakeInference
from waiting import steady

from verifiers.rl.admin import AdminError, AdminLink
from verifiers.rl.dialects import DIALECTS, VLLMDialect, dialect_for, routes_of
from verifiers.rl.weights import FolderWeights

FOLDER = "/weights/step_3"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(params=["vllm", "report", "rpc"])
async def any_server(request):
    async with FakeInference(dialect=request.param) as server:
        yield server


@pytest.fixture
async def server():
    async with FakeInference() as server:
        yield server


async def link_to(server: FakeInference) -> AdminLink:
    link = AdminLink(server.url, update_timeout_s=60, wait_s=0.001)
    routes = await routes_of(link)
    link.can_pause = "pause" in routes
    server.asked.clear()
    server.bodies.clear()
    return link


async def loaded(server: FakeInference, name: str) -> None:
    link = await link_to(server)
    try:
        async with link.paused():
            await DIALECTS[name]().load(link, FolderWeights(FOLDER), "3")
    finally:
        await link.close()


async def test_a_server_s_dialect_is_told_by_its_routes(any_server):
    link = await link_to(any_server)
    assert dialect_for(await routes_of(link)) == any_server.dialect
    assert any_server.asked == [], "to look for a route asks nothing of the server"
    await link.close()


@pytest.mark.parametrize(
    "routes, dialect",
    [
        ({"update_weights"}, None),
        ({"update_weights", "reload_weights"}, "report"),
        ({"update_weights", "reload_weights", "collective_rpc", "start_weight_update"}, "vllm"),
        ({"update_weights", "collective_rpc"}, "rpc"),
        (set(), None),
    ],
)
def test_a_path_that_two_dialects_share_decides_nothing(routes, dialect):
    assert dialect_for(routes) == dialect


async def test_stock_vllm_is_paused_updated_step_by_step_and_resumed(server):
    await loaded(server, "vllm")
    assert server.admin_asked() == [
        "/pause?mode=keep&clear_cache=false",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/reset_prefix_cache",
        "/resume",
    ]
    assert server.bodies["/update_weights"] == [{"update_info": {"folder": FOLDER}}]
    assert server.bodies["/finish_weight_update"] == [{"weight_version": "3"}]
    assert (server.version, server.is_paused) == ("3", False)


async def test_the_report_s_servers_get_a_folder_in_one_request():
    async with FakeInference(dialect="report") as server:
        await loaded(server, "report")
        assert server.admin_asked() == ["/update_weights"]
        assert server.bodies["/update_weights"] == [{"weight_dir": FOLDER}]


@pytest.mark.parametrize(
    "extension, method, name", [(True, "reload_whole", "folder"), (False, "reload_weights", "weights_path")]
)
async def test_a_server_without_weight_transfer_reloads_in_its_workers(extension, method, name):
    async with FakeInference(dialect="rpc", extension=extension) as server:
        link = await link_to(server)
        link.has_extension = extension
        async with link.paused():
            await DIALECTS["rpc"]().load(link, FolderWeights(FOLDER), "3")
        assert server.bodies["/collective_rpc"] == [{"method": method, "kwargs": {name: FOLDER}}]
        assert server.version == "3"
        await link.close()


async def test_the_body_of_one_dialect_is_refused_by_the_other_and_not_taken_for_success():
    async with FakeInference(dialect="report") as server:
        link = await link_to(server)
        with pytest.raises(AdminError, match="weight_dir"):
            await link.post("/update_weights", {"update_info": {"folder": FOLDER}})
        await link.close()


@pytest.mark.parametrize("path", ["/start_weight_update", "/update_weights", "/finish_weight_update"])
async def test_after_any_failure_the_server_goes_on(server, path):
    server.faults[path] = [(500, "it broke")]
    with pytest.raises(AdminError, match=rf"{path} answered 500: it broke"):
        await loaded(server, "vllm")
    assert not server.is_paused
    assert server.version == "default"


async def test_a_pause_whose_answer_was_lost_is_ended_as_well(server):
    server.faults["/pause"] = ["reset"] * 4
    link = await link_to(server)
    with pytest.raises(AdminError, match="gave no answer"):
        async with link.paused():
            pytest.fail("it was never paused")
    assert server.asked[-1] == "/resume"
    await link.close()


async def test_a_pause_that_was_heard_late_is_found_and_ended(server):
    link = await link_to(server)
    server.faults["/pause"] = ["reset"] * 4
    with pytest.raises(AdminError):
        async with link.paused():
            pytest.fail("it was never paused")
    server.is_paused = True
    await link.end_lost_pause()
    assert not server.is_paused
    server.is_paused = True
    await link.end_lost_pause()
    assert server.is_paused, "a pause that is not ours is not ours to end"
    await link.close()


async def test_a_resume_that_fails_at_first_is_repeated(server):
    server.faults["/resume"] = [(500, "busy"), "reset"]
    await loaded(server, "vllm")
    assert server.asked.count("/resume") == 3
    assert not server.is_paused


async def test_a_cancelled_update_does_not_leave_the_server_paused(server):
    server.faults["/update_weights"] = ["hang"]
    server.faults["/resume"] = [(500, "busy")]
    task = asyncio.create_task(loaded(server, "vllm"))
    while "/update_weights" not in server.asked:
        await asyncio.sleep(0.001)
    assert server.is_paused
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not server.is_paused


async def test_a_cancel_during_the_resume_waits_for_it(server):
    server.faults["/resume"] = [(500, "busy")] * 3
    task = asyncio.create_task(loaded(server, "vllm"))
    while "/resume" not in server.asked:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not server.is_paused


@steady(0.1)
async def test_a_server_that_hangs_is_given_up_after_the_time_limit(server):
    server.faults["/update_weights"] = ["hang"]
    link = AdminLink(server.url, update_timeout_s=0.4)
    with pytest.raises(AdminError, match=r"no complete answer within 0\.4 s"):
        async with link.paused():
            await VLLMDialect().load(link, FolderWeights(FOLDER), "3")
    assert not server.is_paused
    await link.close()


async def test_an_update_that_somebody_left_open_is_closed_first(server):
    server.is_updating = True
    await loaded(server, "vllm")
    assert server.version == "3"


async def test_what_a_worker_said_is_told_without_its_frame(server):
    link = await link_to(server)
    with pytest.raises(AdminError) as told:
        await link.call("nothing")
    assert "no attribute 'nothing'" in str(told.value) and "collective_rpc method failed" not in str(told.value)
    await link.close()


async def test_an_address_where_nobody_is_names_it():
    link = AdminLink("http://127.0.0.1:9/v1")
    with pytest.raises(AdminError, match=r"http://127\.0\.0\.1:9/health gave no answer: connection refused"):
        await link.get("/health")
    await link.close()
