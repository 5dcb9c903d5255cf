"""prime-rl's rollout files: what its trainer of the INTELLECT-3 report reads, `rollouts/step_N/rank_R.pt`.

Each file is one data rank's list of micro-batches of one step, saved by torch. Written as a temporary name first and
then renamed: the trainer polls for the name.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verifiers.rl.pack import pack
from verifiers.rl.types import MicroBatch, RankBatch, TrainSample
from verifiers.whole_file import replace_file


def write_step(
    folder: str | Path, step: int, samples: Sequence[TrainSample], *, seq_len: int, ranks: int = 1
) -> list[Path]:
    """Packs the samples of a step for `ranks` data ranks, and writes a file for each. Returns the files.

    Raises ValueError for a sample longer than `seq_len`, or samples of several temperatures, which have one place.
    """
    at = Path(folder) / f"step_{step}"
    at.mkdir(parents=True, exist_ok=True)
    return [_write(at / f"rank_{batch.rank}.pt", rank_file(batch)) for batch in pack(samples, seq_len, ranks, step)]


def rank_file(batch: RankBatch) -> list[dict[str, Any]]:
    """One dict of tensors for each micro-batch, each tensor of shape [1, L]."""
    return [_micro_batch(micro) for micro in batch.micro_batches]


def _micro_batch(micro: MicroBatch) -> dict[str, Any]:
    import torch  # pyright: ignore[reportMissingImports]

    temperatures = set(micro.temperatures)
    if len(temperatures) > 1:
        raise ValueError(f"a micro-batch has one temperature there, and these samples have {sorted(temperatures)}")

    def row(values: Any, dtype: Any) -> Any:
        return torch.tensor(values, dtype=dtype).unsqueeze(0)

    return {
        "input_ids": row(micro.input_ids, torch.long),
        "position_ids": row(micro.position_ids, torch.long),
        "loss_mask": row(micro.loss_mask, torch.bool),
        "advantages": row(micro.advantages, torch.float32),
        "inference_logprobs": row(micro.inference_logprobs, torch.float32),
        "temperature": temperatures.pop(),
    }


def _write(path: Path, value: Any) -> Path:
    import torch  # pyright: ignore[reportMissingImports]

    whole = io.BytesIO()
    torch.save(value, whole)
    replace_file(path, whole.getbuffer())
    return path
