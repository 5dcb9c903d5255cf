"""prime-rl's files: every token of the samples is there once, where its trainer reads it."""

import pytest
from rl_rollouts import Said, group, rollout

from verifiers.adapters.prime_rl import write_step
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.samples import samples_of_group

torch = pytest.importorskip("torch", reason="the files are made by torch: sh scripts/setup_train.sh")

SAID = [Said([1, 2], [3, 4], [-0.1, -0.2]), Said([1, 2, 3, 4, 8], [5], [-0.3])]
DTYPES = {
    "input_ids": torch.long,
    "position_ids": torch.long,
    "loss_mask": torch.bool,
    "advantages": torch.float32,
    "inference_logprobs": torch.float32,
}


def samples(temperature=1.0, rewards=(1.0, 0.0)):
    sampling = {"temperature": temperature}
    rollouts = [rollout(SAID, r, name=f"{temperature}/{n}", sampling=sampling) for n, r in enumerate(rewards)]
    return samples_of_group(group(rollouts), SamplePolicy(seq_len=16)).samples


def read(files):
    return [torch.load(file, weights_only=True) for file in files]


def test_each_rank_has_a_file_of_as_many_micro_batches(tmp_path):
    files = write_step(tmp_path, 7, samples(rewards=(1.0, 0.0, 0.5)), seq_len=12, ranks=2)
    assert [str(file.relative_to(tmp_path)) for file in files] == ["step_7/rank_0.pt", "step_7/rank_1.pt"]
    assert sorted(path.name for path in (tmp_path / "step_7").iterdir()) == ["rank_0.pt", "rank_1.pt"]
    first, second = read(files)
    assert len(first) == len(second) >= 1


def test_a_micro_batch_has_the_trainers_fields_in_one_row_each(tmp_path):
    ((micro,),) = read(write_step(tmp_path, 0, samples(), seq_len=12))
    assert micro.keys() == {*DTYPES, "temperature"}
    assert {name: micro[name].dtype for name in DTYPES} == DTYPES
    assert {micro[name].shape for name in DTYPES} == {(1, 12)}
    assert micro["input_ids"].tolist() == [[1, 2, 3, 4, 8, 5] * 2]
    assert micro["position_ids"].tolist() == [[*range(6)] * 2]
    assert micro["loss_mask"].tolist() == [[False, False, True, True, False, True] * 2]
    assert micro["advantages"].tolist() == [[0, 0, 0.5, 0.5, 0, 0.5, 0, 0, -0.5, -0.5, 0, -0.5]]
    assert micro["inference_logprobs"][0, :6].tolist() == pytest.approx([0, 0, -0.1, -0.2, 0, -0.3])
    assert micro["temperature"] == 1.0


def test_samples_of_two_temperatures_do_not_share_a_micro_batch(tmp_path):
    with pytest.raises(ValueError, match="one temperature there"):
        write_step(tmp_path, 0, [*samples(1.0), *samples(0.5)], seq_len=64)
