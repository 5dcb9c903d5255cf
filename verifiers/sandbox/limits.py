"""`SandboxLimits`: what a program in a sandbox may use."""

from __future__ import annotations

from typing import Any

import msgspec

from verifiers.errors import ConfigError


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Each limit is for the whole process tree where the backend can account for it; `capabilities()` says where.

    `wall_s` counts from when the program starts: time spent waiting for a place is not its own. `output_kb` is for
    stdout and stderr together, `file_mb` for all files written, `processes` for the program's own processes and its
    threads.
    """

    wall_s: float = 10.0
    cpu_s: float | None = None  # None: as many as the wall time allows
    memory_mb: int = 512
    output_kb: int = 1024
    processes: int = 64
    file_mb: int = 64
    network: bool = False

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name != "network" and value is not None and value <= 0:
                raise ConfigError(f"the limit {name} is {value}; it must be greater than 0")

    @classmethod
    def read(cls, values: Any) -> SandboxLimits:
        """From plain values, as in a JSON file. Raises ConfigError that names what is wrong."""
        unknown = sorted(set(values) - set(cls.__struct_fields__)) if isinstance(values, dict) else []
        if unknown:
            raise ConfigError(f"no limit {unknown[0]}; there are {', '.join(cls.__struct_fields__)}")
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"limits: {error}") from None
