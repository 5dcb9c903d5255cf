"""`WeightCheck`: whether a server has the weights that it says, told by its log-probabilities beside the trainer's.

At each step the trainer scores a little text of its batch with the weights of before and with the new ones, and leaves
the figures in the run's folder. A server that has taken the new weights is asked for its own of the same tokens. So an
update that was answered with a 200 and changed nothing, or an output layer that kept the old weights, is seen at once
and by name, and not as a slow decline some hundred steps later.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import msgspec

from verifiers.errors import ConfigError
from verifiers.rl.admin import AdminError, AdminLink
from verifiers.rl.types import MicroBatch, RankBatch
from verifiers.whole_file import replace_file

MOST_TOKENS, LONGEST = 512, 128  # of a text, and of each of its sequences
KEPT = 16  # versions
# A server with more requests than places comes to ours when it is its turn, and the next update waits for that. So
# checks that take long are made less often: what is old in a server stays old, and is seen at a later one.
ANSWER_S = 300.0
FREE_S = 1.0  # one that takes no longer is made after every update
MOST_OF_TIME = 0.1  # of a server's time, that others may take
_NAME = re.compile(r"version_(\d{8})\.json")

OnMismatch = Literal["stop", "leave_out"]


class ScoredText(msgspec.Struct, frozen=True, kw_only=True):
    """Token sequences, and the log-probability of each token but a sequence's first: [len(ids) - 1]."""

    version: int
    token_ids: list[list[int]]
    logprobs: list[list[float]]  # under the weights of `version`
    before: list[list[float]]  # under those of the version before
    schema_version: int = 1

    @classmethod
    def of(cls, text: MicroBatch, before: Sequence[float], now: Sequence[float], version: int) -> ScoredText:
        """From what `Trainer.logprobs` gave for a text [L] before a step and after it."""
        ends = list(accumulate(text.seq_lens))
        spans = [slice(end - length, end) for end, length in zip(ends, text.seq_lens, strict=True)]
        ids = text.input_ids
        return cls(
            version=version,
            token_ids=[list(ids[span]) for span in spans],
            logprobs=[list(now[span])[1:] for span in spans],
            before=[list(before[span])[1:] for span in spans],
        )


def text_of(batch: RankBatch, most_tokens: int = MOST_TOKENS, longest: int = LONGEST) -> MicroBatch:
    """The beginnings of some sequences of a batch, to be scored at temperature 1: all tokens but each one's first.

    They lack the last token at least, since a server must be able to add one within its context. Every rank's batch
    gives a text, if only of a filler.
    """
    found: list[array[int]] = []
    room = most_tokens
    for micro_batch in batch.micro_batches:
        ids, start = micro_batch.input_ids, 0
        for length in micro_batch.seq_lens:
            size = min(max(2, min(length - 1, longest)), room)
            if size >= 2 and (length > 2 or not found):
                found.append(ids[start : start + size])
                room -= size
            start += length
    lengths = [len(sequence) for sequence in found]
    total = sum(lengths)
    return MicroBatch(
        step=batch.step,
        input_buffer=b"".join(sequence.tobytes() for sequence in found),
        position_buffer=b"".join(array("i", range(length)).tobytes() for length in lengths),
        mask_buffer=b"".join(b"\0" + b"\1" * (length - 1) for length in lengths),
        advantage_buffer=bytes(4 * total),
        logprob_buffer=bytes(4 * total),
        temperature_buffer=array("f", [1.0] * len(lengths)).tobytes(),
        seq_lens=lengths,
        rollouts=list(range(len(lengths))),
        total_tokens=total - len(lengths),
    )


class ScoredTexts:
    """A file for each version, in a folder that trainer and orchestrator share."""

    def __init__(self, folder: Path, *, keep: int = KEPT) -> None:
        self.folder, self.keep = folder, keep

    def path(self, version: int) -> Path:
        return self.folder / f"version_{version:08d}.json"

    def write(self, text: ScoredText) -> None:
        """Before the version's weights are given to anybody, or a server may have them sooner."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.path(text.version), msgspec.json.encode(text))
        for path in self.folder.iterdir():
            if (found := _NAME.fullmatch(path.name)) and int(found[1]) <= text.version - self.keep:
                path.unlink(missing_ok=True)

    def read(self, version: int) -> ScoredText | None:
        """`None`: there is none, or no longer."""
        try:
            return _decoder.decode(self.path(version).read_bytes())
        except FileNotFoundError:
            return None


_decoder = msgspec.json.Decoder(ScoredText)


@dataclass(frozen=True)
class WeightGap:
    """How far a server's log-probabilities of a text are from the trainer's, in nats."""

    url: str
    version: int
    tokens: int
    mean: float  # of the absolute differences
    largest: float
    to_before: float  # mean, to those of the weights before
    moved: float | None  # 1: they changed as the trainer's did; 0: not at all; None: the trainer's did not change


class WeightMismatch(AdminError):
    """A server that says it has the new weights, and whose log-probabilities are not theirs."""

    def __init__(self, gap: WeightGap, max_gap: float) -> None:
        super().__init__(
            f"{gap.url} answered that it has the weights of version {gap.version}, but its log-probabilities differ "
            f"from the trainer's by {gap.mean:.3g} on average over {gap.tokens} tokens, by {gap.largest:.3g} at most "
            f"(weight_check.max_gap = {max_gap:g}). {_diagnosis(gap, max_gap)}"
        )
        self.gap = gap


def _diagnosis(gap: WeightGap, max_gap: float) -> str:
    if gap.to_before <= max_gap and gap.to_before < gap.mean / 2:
        return f"They are those of version {gap.version - 1}: the update had no effect there."
    return (
        "Nor are they those of the version before: some layers have kept old weights, or the two compute another "
        "model. An output layer that is tied to the embedding stays old when vLLM reloads on a CPU without our "
        "extension: start it with --worker-extension-cls weights_vllm.WeightExtension. If it is so from the first "
        "update on, look at the server's dtype, quantisation and model."
    )


class WeightCheck:
    """Asks servers about the texts of a run.

    `max_gap` is what the two engines may differ by, in nats, as the mean of absolute differences: bfloat16 on both
    sides gives some hundredths, float32 next to nothing. `stop`: a mismatch ends the run; `leave_out`: its server is
    out of the pool until it has weights that agree.
    """

    def __init__(
        self,
        texts: ScoredTexts,
        model: str,
        *,
        max_gap: float = 0.1,
        on_mismatch: OnMismatch = "stop",
        answer_s: float = ANSWER_S,
        free_s: float = FREE_S,
        most_of_time: float = MOST_OF_TIME,
    ) -> None:
        if not max_gap > 0:
            raise ConfigError(f"weight_check.max_gap: {max_gap}; should be above 0")
        self.texts, self.model, self.max_gap, self.on_mismatch = texts, model, max_gap, on_mismatch
        self.answer_s, self.free_s, self.most_of_time = answer_s, free_s, most_of_time
        self.gaps: dict[str, WeightGap] = {}  # the newest of each server
        self.unchecked = 0  # updates of a server about which nothing could be told
        self._due: dict[str, float] = {}  # of the monotonic clock; not there: at once

    async def of(self, link: AdminLink, version: int, *, is_new: bool = False) -> WeightGap | None:
        """Raises WeightMismatch, and AdminError when the server does not tell. `None`: the trainer left no text, or
        the last check took so long that the next is not due. That of a new server always is."""
        if not is_new and time.monotonic() < self._due.get(link.url, 0.0):
            return None
        text = self.texts.read(version)
        if text is None:
            self.unchecked += 1
            return None
        began = time.monotonic()
        try:
            found = await asked(link, self.model, text, self.answer_s)
        except AdminError:
            self.unchecked += 1
            raise
        finally:
            took_s = time.monotonic() - began
            rest_s = took_s / self.most_of_time - took_s if took_s > self.free_s else 0.0
            self._due[link.url] = began + took_s + rest_s
        gap = self.gaps[link.url] = gap_of(link.url, text, found)
        if not gap.mean <= self.max_gap:
            del self._due[link.url]  # looked at again as soon as it has been given weights again
            raise WeightMismatch(gap, self.max_gap)
        return gap

    def metrics(self) -> dict[str, float]:
        """Of the newest look at each server, the worst; empty before the first."""
        found = {"weights/unchecked": float(self.unchecked)} if self.unchecked else {}
        if self.gaps:
            found["weights/gap"] = max(gap.mean for gap in self.gaps.values())
            found["weights/version"] = float(min(gap.version for gap in self.gaps.values()))
        moved = [gap.moved for gap in self.gaps.values() if gap.moved is not None]
        if moved:
            found["weights/moved"] = min(moved)
        return found


async def asked(link: AdminLink, model: str, text: ScoredText, answer_s: float) -> list[list[float]]:
    """The server's log-probabilities of a text, in the order of `text.logprobs`. Raises AdminError."""
    body = {
        "model": model,
        "prompt": text.token_ids,
        "max_tokens": 1,
        "temperature": 1.0,
        "prompt_logprobs": 0,  # of the prompt's own tokens and no others
        "cache_salt": f"check of version {text.version}",
    }
    reply = await link.post("/v1/completions", body, timeout_s=answer_s)
    try:
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        return [_of_prompt(choice, ids) for choice, ids in zip(choices, text.token_ids, strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise AdminError(f"{link.url}/v1/completions gave no prompt_logprobs ({error!r})") from None


def _of_prompt(choice: Mapping[str, Any], ids: Sequence[int]) -> list[float]:
    _, *told = choice["prompt_logprobs"]
    return [float(of_place[str(token)]["logprob"]) for of_place, token in zip(told, ids[1:], strict=True)]


def gap_of(url: str, text: ScoredText, found: Sequence[Sequence[float]]) -> WeightGap:
    """`found`: the server's, in the order of `text.logprobs`."""
    told, now, before = _joined(found), _joined(text.logprobs), _joined(text.before)
    away = [abs(one - other) for one, other in zip(told, now, strict=True)]
    change = [new - old for new, old in zip(now, before, strict=True)]
    square = sum(value * value for value in change)
    along = sum((one - old) * value for one, old, value in zip(told, before, change, strict=True))
    return WeightGap(
        url=url,
        version=text.version,
        tokens=len(told),
        mean=fmean(away),
        largest=max(away),
        to_before=fmean(abs(one - old) for one, old in zip(told, before, strict=True)),
        moved=along / square if square else None,
    )


def _joined(parts: Sequence[Sequence[float]]) -> list[float]:
    return [value for part in parts for value in part]
