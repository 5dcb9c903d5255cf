"""`MetricLog`: figures of steps, a line of JSON each. Lines are only added; the last one of a step counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from verifiers.records import whole_lines


class StepMetrics(msgspec.Struct, frozen=True):
    step: int
    time: str  # UTC, ISO 8601
    metrics: dict[str, float | None]  # None: a figure that was not finite


class MetricLog:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        line = StepMetrics(step, datetime.now(UTC).isoformat(timespec="seconds"), dict(metrics))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            if file.tell() and not _ends_whole(self.path):
                file.write(b"\n")  # what a killed writer left is a line of its own, which readers pass over
            file.write(msgspec.json.encode(line) + b"\n")

    def read(self) -> list[StepMetrics]:
        """In the order of their steps. A step that was done again counts as it was done last."""
        if not self.path.exists():
            return []
        found: dict[int, StepMetrics] = {}
        for line in whole_lines(self.path):
            try:
                entry = _decoder.decode(line)
            except msgspec.DecodeError:
                continue
            found[entry.step] = entry
        return [found[step] for step in sorted(found)]


_decoder = msgspec.json.Decoder(StepMetrics)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
