"""New weights for a real vLLM, from a folder and by gloo, while it answers: checked by what transformers computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from vllm_server import CONTEXT, MODEL, PYTHON_VAR, VLLMServer, tiny_model, vllm_python
from weight_trainer import WeightTrainer

from verifiers.clients import HTTPClient, ModelRequest
from verifiers.clients.tokens import TokensDialect
from verifiers.rl.inference import InferencePool, UpdateError
from verifiers.rl.launch import VLLMLaunch
from verifiers.rl.sampling import training_sampling
from verifiers.rl.weight_check import ScoredText, ScoredTexts, WeightCheck, WeightMismatch
from verifiers.rl.weights import FolderWeights
from verifiers.types import Response, UserMessage

pytestmark = pytest.mark.vllm

PROMPT = [1, 300, 301, 302]
LONG = 3 * CONTEXT  # tokens of a reply that an update falls into
NEVER_ENDS = {"logit_bias": {"2": -100}}
CLOSE = 5e-4  # float32 on both sides, in another order of additions
LONG_CLOSE = 0.01  # after hundreds of tokens


class LaunchedServer(VLLMServer):
    """Started as the library says that a server for training is to be started."""

    def __init__(self, python: Path, model: Path, log: Path) -> None:
        super().__init__(python, model, log)
        launch = VLLMLaunch(
            model=str(model),
            python=str(python),
            served_name=MODEL,
            port=self.port,
            dtype="float32",
            max_model_len=4 * CONTEXT,
            max_num_seqs=32,
            cpu=True,
        )
        self._command, self._variables = launch.command, self._variables | launch.variables


@dataclass
class Bench:
    """A running server, what it was started from, and a trainer."""

    server: VLLMServer
    trainer: WeightTrainer
    folder: Path
    weights: Path  # that the server has
    tied: bool
    version: int = 0

    def new_weights(self, *, seed: int | None = None, scale: int = 1) -> Path:
        number = len(list(self.folder.iterdir()))
        seed = number if seed is None else seed
        return self.trainer.make(self.folder / f"weights{number}", self.weights, seed=seed, tied=self.tied, scale=scale)

    def pool(self, **more: Any) -> InferencePool:
        return InferencePool([self.server.url], model=MODEL, version=self.version, **more)


@pytest.fixture(scope="module", params=["tied", "untied"])
def bench(request, tmp_path_factory):
    python = vllm_python()
    if python is None:
        pytest.skip(f"{PYTHON_VAR} does not name the Python of a virtual environment with vLLM (scripts/setup_vllm.sh)")
    folder = tmp_path_factory.mktemp("weights")
    with WeightTrainer(python) as trainer:
        tied = request.param == "tied"
        model = trainer.make(folder / "start", tiny_model(folder, python), seed=0, tied=tied)
        with LaunchedServer(python, model, folder / "server.log") as server:
            yield Bench(server, trainer, folder, model, tied)


only_tied = pytest.mark.parametrize("bench", ["tied"], indirect=True)


async def generate(bench: Bench, n: int = 24, **more) -> Response:
    client = HTTPClient(f"{bench.server.url}", dialect="tokens")
    assert isinstance(client.dialect, TokensDialect)
    client.dialect.has_generate = True
    request = ModelRequest(MODEL, [UserMessage("x")], {"max_tokens": n, "logprobs": True} | more, seed=1)
    request.prompt_ids = PROMPT
    try:
        return await client.complete(request)
    finally:
        await client.close()


async def expect_weights(bench: Bench, weights: Path, version: int) -> None:
    """The server's log-probabilities are those of these weights, and its tokens say so."""
    response = await generate(bench)
    made = list(response.tokens.completion_ids)
    expected = await asyncio.to_thread(bench.trainer.logprobs, weights, PROMPT, made)
    assert list(response.tokens.logprobs) == pytest.approx(expected, abs=CLOSE)
    assert {span.version for span in response.versions} == {str(version)}


async def is_paused(bench: Bench) -> bool:
    async with bench.pool() as pool:
        return (await pool.servers[0].link.get("/is_paused"))["is_paused"]


async def across(bench: Bench, update: Callable[[Path], object]) -> list[Response]:
    """The replies that were being made when `update` brought new weights; none is lost or cut off.

    One reply after the other: several are computed in less time than the server takes to send them, and then none is
    under way most of the time. Where none was, there is another update.
    """
    for _ in range(5):
        is_over, replies = asyncio.Event(), list[Response]()

        async def keep_asking(is_over: asyncio.Event = is_over, replies: list[Response] = replies) -> None:
            while not is_over.is_set():
                replies.append(await generate(bench, LONG, extra_body=NEVER_ENDS))

        new = bench.new_weights()
        asking = asyncio.create_task(keep_asking())
        await asyncio.sleep(1.0)
        await asyncio.to_thread(update, new)
        is_over.set()
        await asking
        bench.weights, bench.version = new, bench.version + 1
        for reply in replies:
            assert len(reply.tokens.completion_ids) == len(reply.tokens.logprobs) == reply.versions[-1].end == LONG
        switched = [reply for reply in replies if len(reply.versions) > 1]
        if switched:
            return switched
    pytest.fail("no reply was under way at any of five updates")


def expect_switch(bench: Bench, replies: list[Response]) -> None:
    for reply in replies:
        before, after = reply.versions
        assert (before.version, after.version) == (str(bench.version - 1), str(bench.version))
        assert 0 == before.start < before.end == after.start < after.end


async def test_at_its_start_the_server_has_all_that_training_needs(bench):
    async with bench.pool() as pool:
        report = pool.servers[0].report
    assert (report.dialect, report.engine, report.max_model_len) == ("vllm", "VerifiersEngine", 4 * CONTEXT)
    assert (report.processed_logprobs, report.has_token_routes, report.gives_token_ids) == (True, True, True)
    await expect_weights(bench, bench.weights, 0)


async def test_an_update_from_a_folder_in_flight(bench):
    async def update(new: Path) -> None:
        async with bench.pool() as pool:
            await pool.update(bench.version + 1, FolderWeights(new))

    expect_switch(bench, await across(bench, lambda new: asyncio.run(update(new))))
    await expect_weights(bench, bench.weights, bench.version)


@only_tied
@pytest.mark.parametrize("recompute", [True, False])
async def test_a_reply_under_way_keeps_its_cache_unless_told_to_compute_it_anew(bench, recompute):
    """Anew, its next tokens have the log-probabilities that the new weights alone would give."""

    async def update(new: Path) -> None:
        async with bench.pool(recompute=recompute) as pool:
            await pool.update(bench.version + 1, FolderWeights(new))

    replies = await across(bench, lambda new: asyncio.run(update(new)))
    expect_switch(bench, replies)
    gaps: list[float] = []
    for reply in replies:
        made, after = list(reply.tokens.completion_ids), reply.versions[1].start + 1
        expected = await asyncio.to_thread(bench.trainer.logprobs, bench.weights, PROMPT, made)
        gaps += [abs(a - b) for a, b in zip(list(reply.tokens.logprobs)[after:], expected[after:], strict=True)]
    gap = sum(gaps) / len(gaps)
    assert (gap < LONG_CLOSE) is recompute, gap


async def test_an_update_by_gloo_in_flight(bench):
    def update(new: Path) -> None:
        report = bench.trainer.send(new, bench.server.url, bench.version + 1)
        assert report["failed"] == {} and report["out"] is None

    expect_switch(bench, await across(bench, update))
    await expect_weights(bench, bench.weights, bench.version)


@only_tied
async def test_later_updates_use_the_same_connection(bench):
    for _ in range(3):
        new = bench.new_weights()
        report = await asyncio.to_thread(bench.trainer.send, new, bench.server.url, bench.version + 1)
        assert report["failed"] == {}
        bench.weights, bench.version = new, bench.version + 1
        await expect_weights(bench, new, bench.version)


@only_tied
@pytest.mark.parametrize("by", ["folder", "gloo"])
async def test_weights_of_another_shape_are_refused_and_the_old_ones_serve_on(bench, by):
    other = bench.new_weights(scale=2)
    if by == "folder":
        async with bench.pool() as pool:
            with pytest.raises(UpdateError, match=r"of another shape: .*mlp"):
                await pool.update(bench.version + 1, FolderWeights(other))
            assert len(pool.serving) == 1
    else:
        report = await asyncio.to_thread(bench.trainer.send, other, bench.server.url, bench.version + 1)
        assert "of another shape" in report["failed"][bench.server.url]
        assert report["out"] is None
    assert not await is_paused(bench)
    await expect_weights(bench, bench.weights, bench.version)


@only_tied
async def test_a_folder_with_nothing_in_it_is_refused(bench, tmp_path):
    async with bench.pool() as pool:
        with pytest.raises(UpdateError, match="no safetensors"):
            await pool.update(bench.version + 1, FolderWeights(tmp_path))
    await expect_weights(bench, bench.weights, bench.version)


@only_tied
@pytest.mark.parametrize("fault", ["breaks off", "renamed"])
async def test_a_trainer_that_breaks_off_leaves_a_server_out_of_the_pool_until_the_next_whole_update(bench, fault):
    new = bench.new_weights()
    report = await asyncio.to_thread(bench.trainer.send, new, bench.server.url, bench.version + 1, fault=fault)
    assert report["failed"] and report["out"]
    torn = await generate(bench)
    assert {span.version for span in torn.versions} == {f"torn after {bench.version}"}
    async with bench.pool() as pool:
        assert pool.serving == []
        assert not (await pool.servers[0].link.get("/is_paused"))["is_paused"]
        await pool.update(bench.version + 1, FolderWeights(new))
        assert len(pool.serving) == 1
    bench.weights, bench.version = new, bench.version + 1
    await expect_weights(bench, new, bench.version)


@only_tied
def test_vllm_s_nccl_engine_reads_what_the_sender_would_tell_it(bench):
    """Two GPUs are needed to send by it; that both sides mean the same needs none."""
    read = bench.trainer.ask("nccl", names=["a", "b"])
    assert read["id_is_kept"]
    assert (read["init"]["rank_offset"], read["init"]["world_size"], read["init"]["packed"]) == (1, 3, False)
    assert read["update"] == {"names": ["a", "b"], "dtype_names": ["bfloat16"] * 2, "shapes": [[2, 3]] * 2}


@only_tied
async def test_reloading_in_the_workers_repacks_a_tied_output_layer(bench):
    new = bench.new_weights()
    async with InferencePool([bench.server.url], model=MODEL, version=bench.version, admin="rpc") as pool:
        await pool.update(bench.version + 1, FolderWeights(new))
    bench.weights, bench.version = new, bench.version + 1
    await expect_weights(bench, new, bench.version)


@only_tied
async def test_vllm_s_own_reload_forgets_a_tied_output_layer(bench):
    """Why the engine repacks. When this fails, vLLM has mended it, and `repack_tied` can go."""
    new = bench.new_weights()
    folder = {"weights_path": str(new)}
    await asyncio.to_thread(bench.server.post, "/collective_rpc", {"method": "reload_weights", "kwargs": folder})
    response = await generate(bench)
    made = list(response.tokens.completion_ids)
    expected = await asyncio.to_thread(bench.trainer.logprobs, new, PROMPT, made)
    assert list(response.tokens.logprobs) != pytest.approx(expected, abs=0.1)
    async with bench.pool() as pool:
        await pool.update(bench.version + 1, FolderWeights(new))
    bench.weights, bench.version = new, bench.version + 1
    await expect_weights(bench, new, bench.version)


@only_tied
@pytest.mark.parametrize("forgets", [False, True])
async def test_the_check_after_an_update_sees_an_output_layer_that_was_forgotten(bench, forgets, tmp_path):
    """vLLM's own reload answers with a 200; the check says what is wrong with it."""
    new, version = bench.new_weights(), bench.version + 1
    texts, ids = ScoredTexts(tmp_path), [PROMPT + [400 + 7 * n for n in range(40)], PROMPT[::-1] * 5]
    scored = {
        name: [await asyncio.to_thread(bench.trainer.logprobs, weights, one[:1], one[1:]) for one in ids]
        for name, weights in (("before", bench.weights), ("logprobs", new))
    }
    texts.write(ScoredText(version=version, token_ids=ids, **scored))
    check = WeightCheck(texts, MODEL, max_gap=CLOSE)
    async with bench.pool(check=check, admin="rpc") as pool:
        pool.servers[0].link.has_extension = not forgets
        if forgets:
            with pytest.raises(WeightMismatch, match="output layer that is tied to the embedding stays old") as told:
                await pool.update(version, FolderWeights(new))
            assert told.value.gap.mean > 100 * CLOSE
            pool.servers[0].link.has_extension = True
        await pool.update(version, FolderWeights(new))
        assert check.metrics()["weights/gap"] < CLOSE
        assert check.metrics()["weights/moved"] == pytest.approx(1.0, abs=0.01)
    bench.weights, bench.version = new, version
    await expect_weights(bench, new, version)


@only_tied
async def test_keys_and_values_that_older_weights_computed_are_shut_out_by_the_salt(bench):
    """A reply under way keeps the cache of its prompt alive over the update, so that only the salt can keep it out."""
    client = HTTPClient(bench.server.url, dialect="tokens")
    messages = [UserMessage("zq " * 250)]

    async def ask(salt: int, n: int) -> Response:
        sampling = training_sampling({"max_tokens": n, "extra_body": {"ignore_eos": True}}, salt)
        return await client.complete(ModelRequest(MODEL, messages, sampling, seed=1))

    async def mismatch(response: Response) -> float:
        prompt, made = list(response.tokens.prompt_ids), list(response.tokens.completion_ids)
        expected = await asyncio.to_thread(bench.trainer.logprobs, bench.weights, prompt, made)
        return max(abs(a - b) for a, b in zip(response.tokens.logprobs, expected, strict=True))

    async def update_while_asking() -> tuple[Response, Response, Response]:
        """The reply that was under way, and one after the update with either salt."""
        new, old = bench.new_weights(), bench.version
        under_way = asyncio.create_task(ask(old, 480))
        await asyncio.sleep(0.3)
        async with bench.pool() as pool:
            await pool.update(old + 1, FolderWeights(new))
        bench.weights, bench.version = new, old + 1
        return await under_way, await ask(old, 8), await ask(old + 1, 8)

    for _ in range(20):  # until an update falls between the first token of the reply and its last
        reply, old_salt, new_salt = await update_while_asking()
        if len(reply.versions) > 1 and reply.versions[0].end > 0:
            break
    else:
        pytest.fail("no reply was under way at an update")
    await client.close()
    stale, fresh = await mismatch(old_salt), await mismatch(new_salt)
    assert fresh < LONG_CLOSE < 10 * LONG_CLOSE < stale, (fresh, stale)
