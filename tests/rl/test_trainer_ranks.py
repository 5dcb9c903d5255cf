"""Two ranks that share a model by FSDP2 do what one process does: loss, update, checkpoint, export."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rl_policies import SMALL, torch, transformers, write_model
from rl_ranks_program import STEPS, batches, trainer_of
from safetensors.torch import load_file

TESTS = Path(__file__).parents[1]
WORLD = 2
LONG_S = 600.0  # for processes that start: 20 s of a quiet core, and other tests run beside them
pytestmark = pytest.mark.timeout(LONG_S + 60)
TIMES = {"step_s", "tokens_per_s"}


def run_ranks(model, folder):
    """The program in as many processes. Returns what each told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(TESTS / "rl_ranks_program.py"), str(model), str(folder)]
    processes = [
        subprocess.Popen(command, env=os.environ | shared | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]
    try:
        errors = [process.communicate(timeout=LONG_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * WORLD, "\n".join(errors)
    return [json.loads((folder / f"told_{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """(model, folder, what the ranks told) of one run. Rows of some matrices do not divide by the ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    config = transformers.Qwen3Config(**SMALL | {"intermediate_size": 51}, head_dim=8, tie_word_embeddings=True)
    model = write_model(folder / "model", config)
    return model, folder, run_ranks(model, folder)


@pytest.fixture(scope="module")
def alone(ranks):
    """(trainer, its metrics) of one process over the same steps."""
    trainer = trainer_of(str(ranks[0]))
    return trainer, [trainer.step(batch) for batch in batches(0, 1)]


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_loss_and_metrics_are_those_of_one_process(ranks, alone):
    for told in ranks[2]:
        for found, expected in zip(told["metrics"], alone[1], strict=True):
            assert found.keys() == expected.keys()
            for name in expected.keys() - TIMES - {"ratio_p01", "ratio_p99"}:
                assert found[name] == pytest.approx(expected[name], rel=2e-4, abs=1e-6), name
    assert ranks[2][0]["metrics"][0]["loss"] == pytest.approx(alone[1][0]["loss"], abs=1e-6)  # before any update


def test_the_update_is_that_of_one_process(ranks, alone):
    """To a hundredth of its length: gradients are added up in another order, and Newton–Schulz rounds to bfloat16."""
    start, trained = weights(ranks[0]), weights(ranks[1] / "trained")
    for name, expected in alone[0].named_weights():
        moved = (expected - start[name]).norm()
        assert moved > 0
        assert (trained[name] - expected).norm() < 0.01 * moved, name


def test_a_sharded_matrix_is_orthogonalised_as_a_whole_one(ranks):
    """Bit for bit: more matrices than ranks and fewer, fewer rows than ranks, experts, and shards of columns."""
    for told in ranks[2]:
        assert len(told["orthogonal"]) == 20
        wrong = {name: value for name, value in told["orthogonal"].items() if value > 0}
        assert {name for name in wrong if "axis 0" in name and "6, 10" not in name} == set()
        assert all(value < 0.01 for value in wrong.values())  # experts: products of another batch size


def test_each_rank_keeps_its_share_of_the_weights(ranks):
    whole = sum(tensor.numel() for tensor in weights(ranks[0]).values())
    shares = [told["local_numel"] for told in ranks[2]]
    assert sum(shares) == whole
    assert all(share < 0.6 * whole for share in shares)


def test_no_rank_updates_when_one_has_a_gradient_that_is_no_number(ranks):
    assert [told["refused"] for told in ranks[2]] == [True] * WORLD


def test_ranks_resume_and_checkpointing_of_activations_changes_nothing(ranks):
    first, second = weights(ranks[1] / "trained"), weights(ranks[1] / "again")
    assert all(told["resumed"] for told in ranks[2])
    for name, tensor in first.items():
        assert torch.equal(second[name], tensor), name


def test_one_process_resumes_what_two_ranks_saved(ranks, alone):
    trainer = trainer_of(str(ranks[0]))
    assert trainer.resume(ranks[1] / "checkpoints")
    metrics = trainer.step(batches(0, 1)[STEPS - 1])
    expected = ranks[2][0]["metrics"][STEPS - 1]
    assert metrics["loss"] == pytest.approx(expected["loss"], abs=1e-6)
    start, trained = weights(ranks[0]), weights(ranks[1] / "trained")
    for name, tensor in trainer.named_weights():
        assert (trained[name] - tensor).norm() < 0.01 * (tensor - start[name]).norm(), name


def test_logprobs_between_steps_are_those_of_one_process(ranks, alone):
    trainer = trainer_of(str(ranks[0]))
    for rank, told in enumerate(ranks[2]):
        expected = trainer.logprobs(batches(rank, WORLD)[0].micro_batches[0])
        assert told["probe"] == pytest.approx(expected, abs=1e-5)


def test_layers_in_bfloat16_come_near(ranks, alone):
    for told in ranks[2]:
        for found, expected in zip(told["mixed"], alone[1], strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], abs=0.05)
            assert found["entropy"] == pytest.approx(expected["entropy"], rel=0.01)
