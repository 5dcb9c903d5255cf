"""An environment at Atropos: the body of a group, and a round trip through its real API server."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest
from letter_chat import Engine
from rl_rollouts import Said, rollout
from trainer_packages import folder_of

import verifiers as vf
from verifiers.adapters.atropos import MASKED, NO_LOGPROB, AtroposSource, scored_data
from verifiers.errors import SetupError
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.token_client import Sampled, TokenClient


def record(said, reward=1.0, **given):
    return rollout(said, reward, **given).record


ONE = [Said([1, 2], [3, 4])]
TWO_TURNS = [Said([1, 2], [3, 4], [-0.1, -0.2]), Said([1, 2, 3, 4, 8, 9], [5], [-0.3])]


def test_every_array_of_a_sequence_has_its_length_and_only_what_was_sampled_is_trained():
    data = scored_data([record(TWO_TURNS, 1.0), record(ONE, 0.0)])
    assert data["tokens"] == [[1, 2, 3, 4, 8, 9, 5], [1, 2, 3, 4]]
    assert data["masks"] == [[MASKED, MASKED, 3, 4, MASKED, MASKED, 5], [MASKED, MASKED, 3, 4]]
    assert data["scores"] == [1.0, 0.0]
    assert data["advantages"] == [[0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5], [0.0, 0.0, -0.5, -0.5]]
    first = [NO_LOGPROB, NO_LOGPROB, -0.1, -0.2, NO_LOGPROB, NO_LOGPROB, -0.3]
    assert data["inference_logprobs"][0] == pytest.approx(first)
    assert json.loads(json.dumps(data)) == data


def test_a_try_without_a_reward_keeps_its_place_and_moves_no_other():
    data = scored_data([record(ONE, 1.0), record(ONE, None), record((), None, status="failed"), record(ONE, 0.5)])
    assert len(data["tokens"]) == 4
    assert data["scores"] == [1.0, 0.75, 0.75, 0.5]
    assert [any(token != MASKED for token in mask) for mask in data["masks"]] == [True, False, False, True]
    assert [row[-1] for row in data["advantages"]] == [0.25, 0.0, 0.0, -0.25]


def test_a_group_that_teaches_nothing_is_not_sent():
    assert scored_data([record(ONE, 1.0), record(ONE, 1.0)]) is None
    assert scored_data([record(ONE, 1.0), record(ONE, None)]) is None
    assert scored_data([record((), None, status="failed")] * 2) is None


def test_a_sequence_is_cut_to_what_the_trainer_takes():
    data = scored_data([record(TWO_TURNS, 1.0), record(ONE, 0.0)], max_tokens=4)
    assert data["tokens"] == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert {len(row) for name in ("masks", "advantages", "inference_logprobs") for row in data[name]} == {4}


def test_a_group_size_that_atropos_cannot_batch_is_refused():
    with pytest.raises(SetupError, match=r"group_size = 6: .* powers of two"):
        AtroposSource("http://127.0.0.1:1", words(), None, "policy", group_size=6)


async def test_without_a_server_the_error_says_how_to_start_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SetupError, match=r"no Atropos server at .* run-api"):
        await AtroposSource(url, words(), None, "policy").register()


# With its server


@pytest.fixture
def server():
    packages = folder_of("atroposlib")  # its server needs no more than the hub's does
    pytest.importorskip("uvicorn", reason="the extra 'hub' is not installed")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        port = listening.getsockname()[1]
        program = (
            "import sys, uvicorn\nfrom atroposlib.api.server import app\n"
            f"uvicorn.Server(uvicorn.Config(app, fd={listening.fileno()}, log_level='error')).run()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[listening.fileno()],
            env={**os.environ, "PYTHONPATH": str(packages)},
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    ) as reply:
        return json.load(reply)


def words():
    rows = [{"question": "abc", "answer": "cba"}, {"question": "de", "answer": "ed"}]

    def exact(completion, answer):
        if completion[-1]["content"] == "x":
            raise vf.Undecided("no word")
        return float(completion[-1]["content"] == answer)

    return EnvRollouts(vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([exact])))


def client_of(engine):
    async def sample(prompt_ids, sampling, affinity):
        return Sampled(*await engine.answer(prompt_ids))

    return TokenClient(sample, HuggingFaceChat(engine.tokenizer))


class Trainer:
    """What a trainer does at the server: it registers, asks for batches, and takes `steps` of them."""

    def __init__(self, url, batch_size, steps):
        self.url, self.steps, self.batches = url, steps, []
        ask(url, "/register", {
            "wandb_group": "", "wandb_project": "", "batch_size": batch_size, "max_token_len": 64,
            "checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": steps,
        })  # fmt: skip

    async def run(self):
        while len(self.batches) < self.steps:
            batch = (await asyncio.to_thread(ask, self.url, "/batch"))["batch"]
            if batch is None:
                await asyncio.sleep(0.05)
            else:
                self.batches.append(batch)


@pytest.mark.slow
async def test_groups_go_through_the_real_server_into_a_trainers_batches(server):
    engine = Engine(lambda question, number: ["x", question[::-1], "a", question[::-1]][number % 4])
    trainer = await asyncio.to_thread(Trainer, server, 8, 3)
    source = AtroposSource(
        server, words(), client_of(engine), "policy", group_size=4, max_tokens=64, groups_in_flight=1
    )
    async with asyncio.timeout(60):
        await asyncio.gather(source.run(), trainer.run())
    assert [sum(len(group["tokens"]) for group in batch) for batch in trainer.batches] == [8, 8, 8]
    for group in (group for batch in trainer.batches for group in batch):
        assert group["env_id"] == source.env_id == 0
        texts = [engine.tokenizer.decode(ids) for ids in group["tokens"]]
        word = texts[0].removeprefix("<user>").partition("<assistant>")[0]
        assert texts == [f"<user>{word}<assistant>{reply}<end>" for reply in ("x", word[::-1], "a", word[::-1])]
        assert group["scores"] == pytest.approx([2 / 3, 1.0, 0.0, 1.0])
        trained = [
            engine.tokenizer.decode(t for t, m in zip(ids, mask, strict=True) if m != MASKED)
            for ids, mask in zip(group["tokens"], group["masks"], strict=True)
        ]
        assert trained == ["", f"{word[::-1]}<end>", "a<end>", f"{word[::-1]}<end>"]
        logprobs = zip(group["inference_logprobs"][1], group["masks"][1], strict=True)
        assert {logprob for logprob, mask in logprobs if mask != MASKED} == {-0.25}
    assert source.pushed >= 6 and source.skipped == 0


@pytest.mark.slow
async def test_a_source_whose_groups_teach_nothing_gives_up(server):
    engine = Engine(lambda question, number: "a")
    await asyncio.to_thread(Trainer, server, 4, 2)
    await asyncio.to_thread(ask, server, "/batch")  # what starts it
    source = AtroposSource(server, words(), client_of(engine), "policy", group_size=4)
    async with asyncio.timeout(30):
        with pytest.raises(SetupError, match="groups of SingleTurnEnv taught nothing"):
            await source.run()
    assert 10 <= source.skipped <= 14


@pytest.mark.slow
async def test_a_source_waits_while_the_servers_queue_is_long(server):
    engine = Engine(lambda question, number: question[::-1] if number % 2 else "a")
    trainer = await asyncio.to_thread(Trainer, server, 4, 2)
    await asyncio.to_thread(ask, server, "/batch")  # what starts it
    source = AtroposSource(
        server, words(), client_of(engine), "policy", group_size=2, max_tokens=64, groups_in_flight=1, ahead=1
    )
    running = asyncio.create_task(source.run())
    try:
        while source.pushed < 3:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)
        assert source.pushed <= 4  # a batch of four sequences is ahead, and one group was in flight
        async with asyncio.timeout(30):
            await asyncio.gather(running, trainer.run())
    finally:
        running.cancel()
