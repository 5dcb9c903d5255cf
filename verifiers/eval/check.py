"""`Check`: one line of what `vf-validate` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "failed", "not applicable"]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    reason: str = ""
