"""What a supervised stage trains on: saved rollouts that were good enough, and chats, as batches in a fixed order.

Loads no torch. A rollout whose tokens were saved is trained on as it was sampled, token for token; everything else is
rendered by the same renderer that reinforcement learning uses.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from verifiers.errors import ConfigError
from verifiers.records import RolloutRecord
from verifiers.results import load_results
from verifiers.rl.branches import BadTokens, branches_of
from verifiers.rl.pack import pack
from verifiers.rl.render import Rendered
from verifiers.rl.types import RankBatch, TrainSample


class Renders(Protocol):
    """As much of a `render.Renderer` as this needs."""

    def sequences(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[Rendered]: ...


class DataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the conversations of a stage are, and which of them are wanted."""

    records: list[str] = []  # folders of saved runs
    chats: list[str] = []  # files of JSON lines {"messages": […], "tools": […]}, `tools` optional
    min_reward: float | None = None  # of a rollout; None: any that has a reward
    seq_len: int = 32768  # tokens of a micro-batch; longer sequences are left out
    batch_size: int = 64  # sequences a step, over all ranks
    epochs: int = 1

    def __post_init__(self) -> None:
        if not self.records and not self.chats:
            raise ConfigError("data.records, data.chats: both empty; should name at least one file")
        for name, lowest in (("seq_len", 2), ("batch_size", 1), ("epochs", 1)):
            if (value := getattr(self, name)) < lowest:
                raise ConfigError(f"data.{name}: {value}; should be at least {lowest}")


class Chat(msgspec.Struct, frozen=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


@dataclass
class DataCounts:
    """What was read and what became of it."""

    conversations: int = 0
    low_reward: int = 0  # left out: a reward below `min_reward`, or none
    broken: int = 0  # left out: cut short, or with an error in it
    untrained_replies: int = 0  # left out of their conversation: the template tells them in no way to learn from
    overlong: int = 0  # sequences left out
    empty: int = 0  # sequences left out: nothing in them to train on
    sequences: int = 0
    trained_tokens: int = 0


@dataclass
class StageData:
    """The sequences of a stage. `batch(step)` depends on the seed and the step alone, so a run that is resumed goes on
    with what it had not seen."""

    config: DataConfig
    samples: list[TrainSample]
    counts: DataCounts
    seed: int = 0
    _orders: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    @classmethod
    def read(cls, config: DataConfig, renderer: Renders, *, seed: int = 0) -> StageData:
        """Raises ConfigError for a file that is no such file and where nothing is left, ResultsError for a folder."""
        counts = DataCounts()
        samples: list[TrainSample] = []
        for name, rendered in _sequences(config, renderer, counts):
            sample = _sample(name, rendered)
            if not sample.num_trained:
                counts.empty += 1
            elif sample.num_tokens > config.seq_len:
                counts.overlong += 1
            else:
                samples.append(sample)
        counts.sequences = len(samples)
        counts.trained_tokens = sum(sample.num_trained for sample in samples)
        if not samples:
            raise ConfigError(f"data: nothing is left to train on: {counts}")
        return cls(config, samples, counts, seed)

    @property
    def steps(self) -> int:
        return -(-len(self.samples) * self.config.epochs // self.config.batch_size)

    def batch(self, step: int, world_size: int = 1) -> list[RankBatch]:
        """What each rank does in a step. The sequences of each epoch come in an order of its own, each once."""
        first = step * self.config.batch_size
        last = min(first + self.config.batch_size, len(self.samples) * self.config.epochs)
        chosen = [self._at(place) for place in range(first, last)]
        return pack(chosen, self.config.seq_len, world_size, step)

    def _at(self, place: int) -> TrainSample:
        epoch, within = divmod(place, len(self.samples))
        if epoch not in self._orders:
            order = list(range(len(self.samples)))
            random.Random(f"{self.seed}:{epoch}").shuffle(order)
            self._orders = {known: kept for known, kept in self._orders.items() if known >= epoch - 1}
            self._orders[epoch] = order
        return self.samples[self._orders[epoch][within]]


def _sequences(config: DataConfig, renderer: Renders, counts: DataCounts) -> Iterator[tuple[str, Rendered]]:
    for folder in config.records:
        for record in load_results(Path(folder), tokens=True):
            counts.conversations += 1
            if record.reward is None or (config.min_reward is not None and record.reward < config.min_reward):
                counts.low_reward += 1
            elif record.errors or record.is_truncated:
                counts.broken += 1
            else:
                for branch, rendered in enumerate(_of_record(record, renderer, counts)):
                    yield f"{folder}:{record.example_id}:{record.rollout_index}:{branch}", rendered
    for path in config.chats:
        for number, chat in enumerate(_chats(path)):
            counts.conversations += 1
            for branch, rendered in enumerate(_rendered(chat.messages, chat.tools, renderer, counts)):
                yield f"{path}:{number}:{branch}", rendered


def _of_record(record: RolloutRecord, renderer: Renders, counts: DataCounts) -> Iterable[Rendered]:
    try:
        branches = branches_of(record.turns, ("assistant",))
    except BadTokens:  # not saved, or not all
        branches = []
    if not branches:
        tools = record.state_columns.get("tool_defs")
        return _rendered([*record.prompt, *record.messages], tools, renderer, counts)
    found: list[Rendered] = []
    for branch in branches:
        mask = [0] * len(branch)
        for start, end, _ in branch.sampled:
            mask[start:end] = [1] * (end - start)
        found.append(Rendered(list(array("i", bytes(branch.ids))), mask))
    return found


def _rendered(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    renderer: Renders,
    counts: DataCounts,
) -> list[Rendered]:
    found = renderer.sequences(messages, tools)
    counts.untrained_replies += sum(len(rendered.untrained) for rendered in found)
    return found


def _sample(name: str, rendered: Rendered) -> TrainSample:
    mask = bytes([0, *rendered.mask[1:]]) if rendered.mask else b""  # nothing foretells the first token
    numbers = array("f", bytes(4 * len(mask))).tobytes()
    return TrainSample(
        env="supervised",
        example_id=0,
        group_id=name,
        rollout_id=name,
        token_buffer=array("i", rendered.ids).tobytes(),
        mask_buffer=mask,
        logprob_buffer=numbers,
        advantage_buffer=numbers,
        version_min=0,
        version_max=0,
    )


def _chats(path: str) -> Iterator[Chat]:
    decoder = msgspec.json.Decoder(Chat)
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _chat(decoder, line, f"{path}:{number}")
    except OSError as error:
        raise ConfigError(f"data.chats: {path} cannot be read ({error.strerror}); should be JSON lines") from error


def _chat(decoder: msgspec.json.Decoder[Chat], line: bytes, place: str) -> Chat:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise ConfigError(f'{place}: {error}; should be {{"messages": […], "tools": […]}}') from error
