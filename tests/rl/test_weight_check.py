"""After an update every server is asked for log-probabilities that only the new weights give; a liar is named."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from inference_servers import FakeInference
from rl_world import Fate, ScriptedGroups, packed, settings, source

from verifiers.errors import ConfigError
from verifiers.rl.inference import InferencePool, UpdateError
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import FILLER_TOKENS, pack
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.samples import samples_of_group
from verifiers.rl.transports.memory import MemoryTransport
from verifiers.rl.types import RankBatch, TrainSample
from verifiers.rl.weight_check import ScoredText, ScoredTexts, WeightCheck, WeightMismatch, text_of
from verifiers.rl.weights import FolderWeights

pytestmark = pytest.mark.timeout(200)

VOCABULARY, HIDDEN = 8, 4
IDS = [[1, 5, 2, 7, 0, 3], [4, 4, 6, 1]]
Matrix = list[list[float]]


def embedding(version: int) -> Matrix:
    generator = random.Random(version)
    return [[generator.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(VOCABULARY)]


def logprobs(ids: list[int], embed: Matrix, head: Matrix) -> list[float]:
    """Of each token but the first: a model of one layer, whose head is its embedding when both are the same."""
    found = []
    for token, after in pairwise(ids):
        hidden = [math.tanh(value) for value in embed[token]]
        logits = [sum(a * b for a, b in zip(row, hidden)) for row in head]
        found.append(logits[after] - math.log(sum(map(math.exp, logits))))
    return found


class Server(FakeInference):
    """It answers every update with a 200. `keeps` says what has the old weights afterwards all the same."""

    def __init__(self, keeps: str = "", **given: Any) -> None:
        super().__init__(**given)
        self.keeps = keeps
        self.embed, self.head = embedding(0), embedding(0)
        self.tells = True

    async def _finish(self, request: web.Request) -> Any:
        version = (await request.json()).get("weight_version")
        if version is not None:
            new = embedding(int(version))
            self.embed = self.embed if self.keeps == "all" else new
            self.head = self.head if self.keeps else new
        return await super()._finish(request)

    async def _completions(self, request: web.Request) -> Any:
        body = await request.json()
        if "prompt_logprobs" not in body:
            return await super()._completions(request)
        choices = []
        for number, ids in enumerate(body["prompt"]):
            told = [{str(t): {"logprob": p}} for t, p in zip(ids[1:], logprobs(ids, self.embed, self.head))]
            choices.append({"index": number, "text": "", "prompt_logprobs": [None, *told] if self.tells else None})
        return {"choices": choices[::-1]}  # no order is promised


@pytest.fixture
def texts(tmp_path) -> ScoredTexts:
    """As a trainer leaves them, for versions 1 and 2."""
    made = ScoredTexts(tmp_path / "weight_checks")
    for version in (1, 2):
        now, before = embedding(version), embedding(version - 1)
        made.write(
            ScoredText(
                version=version,
                token_ids=IDS,
                logprobs=[logprobs(ids, now, now) for ids in IDS],
                before=[logprobs(ids, before, before) for ids in IDS],
            )
        )
    return made


def pool_of(texts: ScoredTexts, *servers: Server, **given: Any) -> InferencePool:
    check = WeightCheck(texts, "m", max_gap=0.01, **given)
    return InferencePool([server.url for server in servers], model="m", check=check, watch_s=1000)


def weights(tmp_path: Path) -> FolderWeights:
    return FolderWeights(tmp_path)


async def test_a_server_with_the_new_weights_agrees_to_rounding(texts, tmp_path):
    async with Server() as server, pool_of(texts, server) as pool:
        for version in (1, 2):
            report = await pool.update(version, weights(tmp_path))
            assert report.updated == (server.url,)
            metrics = pool.check.metrics()
            assert metrics["weights/gap"] < 1e-9
            assert metrics["weights/moved"] == pytest.approx(1.0)
            assert metrics["weights/version"] == version


async def test_a_tied_output_layer_that_stays_old_behind_a_200_is_named(texts, tmp_path):
    async with Server(keeps="output layer") as server, pool_of(texts, server) as pool:
        with pytest.raises(WeightMismatch, match="output layer that is tied to the embedding stays old") as told:
            await pool.update(1, weights(tmp_path))
        assert server.version == "torn after 1"  # whoever reads its tokens can tell
        assert server.aborts == 1
        assert not server.is_paused
        assert pool.serving == []
    assert server.root in str(told.value)
    assert told.value.gap.mean > 0.01


async def test_an_update_without_effect_is_told_from_one_that_was_half_done(texts, tmp_path):
    async with Server(keeps="all") as server, pool_of(texts, server) as pool:
        with pytest.raises(WeightMismatch, match="those of version 0: the update had no effect"):
            await pool.update(1, weights(tmp_path))
        assert pool.check.metrics()["weights/moved"] == pytest.approx(0.0)


async def test_a_mismatch_ends_the_run(texts, tmp_path):
    feed, transport = MemoryFeed(), MemoryTransport()
    async with Server(keeps="output layer") as server, pool_of(texts, server) as pool:
        orchestrator = Orchestrator(
            [source()],
            executor=ScriptedGroups(lambda request: Fate(seconds=0.01), pool),  # type: ignore[arg-type]
            policy=pool,
            feed=feed,
            sender=transport,
            samples_of=samples_of_group,
            pack=packed,
            settings=settings(),
        )
        await feed.announce(1, weights(tmp_path))
        with pytest.raises(WeightMismatch, match="output layer"):
            await asyncio.wait_for(orchestrator.run(100), 60)


async def test_where_servers_are_left_out_the_others_go_on_and_it_comes_back_when_it_agrees(texts, tmp_path):
    async with (
        Server(keeps="output layer") as liar,
        Server() as honest,
        pool_of(texts, liar, honest, on_mismatch="leave_out") as pool,
    ):
        report = await pool.update(1, weights(tmp_path))
        assert report.updated == (honest.url,)
        assert "output layer" in report.failed[liar.url]
        await pool.look()  # it is given the weights again, and looked at again
        assert [server.url for server in pool.serving] == [honest.url]
        liar.keeps = ""
        await pool.look()
        assert [server.url for server in pool.serving] == [liar.url, honest.url]


async def test_when_no_server_agrees_none_took_the_weights(texts, tmp_path):
    slow = {"free_s": 0.0, "most_of_time": 1e-9}  # a check that took long does not keep a liar from the next one
    async with Server(keeps="all") as server, pool_of(texts, server, on_mismatch="leave_out", **slow) as pool:
        with pytest.raises(UpdateError, match="no effect"):
            await pool.update(1, weights(tmp_path))
        with pytest.raises(UpdateError, match="no effect"):
            await pool.update(1, weights(tmp_path))
        server.keeps = ""
        await pool.update(1, weights(tmp_path))
        assert len(pool.serving) == 1


async def test_a_server_that_starts_anew_is_looked_at_before_it_is_let_in(texts, tmp_path):
    async with Server() as server, pool_of(texts, server) as pool:
        await pool.update(1, weights(tmp_path))
        server.version, server.keeps = "default", "output layer"
        server.embed = server.head = embedding(0)
        pool.servers[0].out = "it was killed"
        await pool.look()
        assert pool.serving == []
        assert "output layer" in (pool.servers[0].out or "")


async def test_what_cannot_be_told_is_counted_and_no_mismatch(texts, tmp_path, caplog):
    async with Server() as server, pool_of(texts, server) as pool:
        server.tells = False
        with caplog.at_level(logging.WARNING):
            await pool.update(1, weights(tmp_path))
        assert "cannot be told" in caplog.text and "prompt_logprobs" in caplog.text
        await pool.update(3, weights(tmp_path))  # of which the trainer left no text
        assert pool.check.metrics() == {"weights/unchecked": 2.0}
        assert len(pool.serving) == 1


async def test_checks_that_take_long_are_made_less_often_but_for_a_server_that_is_new(texts, tmp_path):
    """All that take longer than nothing are long here, and next to no time may go by with them."""
    async with Server() as server, pool_of(texts, server, free_s=0.0, most_of_time=1e-9) as pool:
        for version in (1, 2):
            await pool.update(version, weights(tmp_path))
        assert pool.check.metrics()["weights/version"] == 1
        pool.servers[0].out = "it was killed"
        server.version = "default"
        await pool.look()
        assert pool.check.metrics()["weights/version"] == 2


def test_only_the_newest_texts_are_kept(tmp_path):
    texts = ScoredTexts(tmp_path, keep=3)
    for version in range(1, 8):
        texts.write(ScoredText(version=version, token_ids=[[1, 2]], logprobs=[[-1.0]], before=[[-2.0]]))
    assert [version for version in range(10) if texts.read(version) is not None] == [5, 6, 7]


def test_a_limit_of_nothing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"weight_check\.max_gap: 0"):
        WeightCheck(ScoredTexts(tmp_path), "m", max_gap=0)


def batches(lengths: list[int], ranks: int = 1) -> list[RankBatch]:
    samples = []
    for number, length in enumerate(lengths):
        ids, zeros = [number + 1] * length, bytes(4 * length)
        samples.append(
            TrainSample(
                env="e", example_id=0, group_id="g", rollout_id=f"r{number}", version_min=0, version_max=0,
                token_buffer=b"".join(token.to_bytes(4, "little") for token in ids),
                mask_buffer=bytes([0] + [1] * (length - 1)), logprob_buffer=zeros, advantage_buffer=zeros,
            )
        )  # fmt: skip
    return pack(samples, max(lengths), ranks, step=7)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=12), st.integers(10, 60), st.integers(4, 20))
def test_a_text_is_made_of_the_beginnings_of_sequences_within_its_limits(lengths, most_tokens, longest):
    (batch,) = batches(lengths)
    text = text_of(batch, most_tokens, longest)
    assert text.seq_lens and sum(text.seq_lens) <= max(most_tokens, 2)
    starts = [sum(text.seq_lens[:number]) for number in range(len(text.seq_lens))]
    for start, length in zip(starts, text.seq_lens):
        (token,) = set(text.input_ids[start : start + length])  # of one sequence
        assert 2 <= length <= longest
        assert length < lengths[token - 1] or length == 2  # a server can add a token to it
        assert list(text.loss_mask[start : start + length]) == [0] + [1] * (length - 1)
        assert list(text.position_ids[start : start + length]) == list(range(length))


def test_a_rank_that_has_only_a_filler_has_a_text_all_the_same():
    _, second = batches([30], ranks=2)
    assert text_of(second).seq_lens == [FILLER_TOKENS]
