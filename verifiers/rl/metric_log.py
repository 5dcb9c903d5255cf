"""`MetricLog`: figures of steps, a line of JSON each. Lines are only added; the last one of a step counts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from verifiers.line_file import LineFile, read_lines


class StepMetrics(msgspec.Struct, frozen=True):
    step: int
    time: str  # UTC, ISO 8601
    metrics: dict[str, float | None]  # None: a figure that was not finite


class MetricLog:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """On the disk when it returns: a step takes far longer."""
        line = StepMetrics(step, datetime.now(UTC).isoformat(timespec="seconds"), dict(metrics))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(LineFile(self.path)) as file:
            file.cut_torn_line()
            file.append(msgspec.json.encode(line))

    def read(self) -> list[StepMetrics]:
        """In the order of their steps. A step that was done again counts as it was done last."""
        if not self.path.exists():
            return []
        found = {entry.step: entry for entry in read_lines(self.path, _decoder.decode)}
        return [found[step] for step in sorted(found)]


_decoder = msgspec.json.Decoder(StepMetrics)
