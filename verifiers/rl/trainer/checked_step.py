"""`checked_step`: a trainer's step, and the figures by which servers are checked that take its weights."""

# pyright: reportMissingImports=false
# torch is an extra

from __future__ import annotations

from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.types import RankBatch
from verifiers.rl.weight_check import ScoredText, ScoredTexts, text_of


def checked_step(trainer: Trainer, batch: RankBatch, texts: ScoredTexts | None) -> dict[str, float]:
    """`trainer.step(batch)`; the first rank leaves a text, scored before and after. To be called on all ranks.

    It costs two passes without gradient of a few hundred tokens. `None`: nobody checks.
    """
    if texts is None:
        return trainer.step(batch)
    text = text_of(batch)
    before = trainer.logprobs(text)
    metrics = trainer.step(batch)
    now = trainer.logprobs(text)  # all ranks: a layer that is shared out is gathered from all of them
    if trainer.ranks.rank == 0:
        texts.write(ScoredText.of(text, before, now, trainer.version))
    return metrics
