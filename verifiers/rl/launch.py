"""`VLLMLaunch`: the command line and environment of a vLLM server that can be trained from.

Writes them; starts nothing. What a flag is for stands beside it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verifiers.errors import ConfigError

EXTENSION_FOLDER = Path(__file__).with_name("inside_vllm")
EXTENSION = "weights_vllm.WeightExtension"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class VLLMLaunch:
    """How to start one server. Raises ConfigError that names the field.

    The routes that change weights have no key: whoever reaches the port can use them. Give `host` an address other
    than loopback only in a network that is yours alone.

    >>> launch = VLLMLaunch(model="Qwen/Qwen3-4B", python="/opt/vllm/bin/python")
    >>> subprocess.Popen(launch.command, env=os.environ | launch.variables)
    """

    model: str  # a folder or a name
    python: str = "python"  # of the virtual environment that has vLLM
    served_name: str | None = None  # by which requests name it; None: `model`
    host: str = _LOOPBACK
    port: int = 8000
    dtype: str = "auto"  # float32 on a CPU, where log-probabilities then equal a float32 trainer's to 4 decimals
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    transfer: Literal["verifiers", "nccl"] = "verifiers"  # folders and gloo by our engine, or NCCL by vLLM's
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    priorities: bool = False  # requests may say how urgent they are
    speculation: Mapping[str, Any] | None = None  # vLLM's --speculative-config
    cpu: bool = False  # vLLM for CPUs
    extra: tuple[str, ...] = ()  # more arguments, after ours
    more_variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model is the folder or name of what to serve; it is empty")
        if not 0 < self.port < 65_536:
            raise ConfigError(f"port is a number from 1 to 65535; got {self.port}")
        if self.tensor_parallel < 1 or self.data_parallel < 1:
            raise ConfigError(
                f"tensor_parallel, data_parallel: {self.tensor_parallel}, {self.data_parallel}; 1 or more"
            )
        if self.cpu and self.transfer == "nccl":
            raise ConfigError("transfer = 'nccl' moves weights between GPUs; a server on a CPU wants 'verifiers'")

    @property
    def name(self) -> str:
        return self.served_name or self.model

    @property
    def url(self) -> str:
        """For `Endpoint`. A server that listens on all addresses is reached by loopback."""
        host = _LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    @property
    def command(self) -> list[str]:
        # Not `vllm serve`: that does not start where vLLM was installed under another name, as builds for CPUs are
        arguments = [self.python, "-m", "vllm.entrypoints.openai.api_server"]
        arguments += ["--model", self.model, "--served-model-name", self.name]
        arguments += ["--host", self.host, "--port", str(self.port), "--dtype", self.dtype]
        # Log-probabilities after temperature, as the trainer computes them; vLLM's default is before
        arguments += ["--logprobs-mode", "processed_logprobs"]
        # Else top_k, top_p and temperature that a request leaves open come from the model's generation_config.json
        arguments += ["--generation-config", "vllm"]
        # Token ids in and out, and with each reply which weights made which of its tokens
        arguments += ["--enable-scale-out"]
        arguments += ["--weight-transfer-config", json.dumps({"backend": self.transfer}, separators=(",", ":"))]
        # With nccl too: it tells whether a failed update has left the weights whole
        arguments += ["--worker-extension-cls", EXTENSION]
        for flag, value, default in (
            ("--max-model-len", self.max_model_len, None),
            ("--max-num-seqs", self.max_num_seqs, None),
            ("--tensor-parallel-size", self.tensor_parallel, 1),
            ("--data-parallel-size", self.data_parallel, 1),
            ("--reasoning-parser", self.reasoning_parser, None),
        ):
            arguments += [] if value == default else [flag, str(value)]
        if self.tool_parser:
            arguments += ["--enable-auto-tool-choice", "--tool-call-parser", self.tool_parser]
        if self.priorities:
            arguments += ["--scheduling-policy", "priority"]
        if self.speculation:
            arguments += ["--speculative-config", json.dumps(dict(self.speculation), separators=(",", ":"))]
        if self.cpu:
            arguments += ["--enforce-eager"]
        return [*arguments, *self.extra]

    @property
    def variables(self) -> dict[str, str]:
        """To be added to those of the process. Extends `PYTHONPATH` as it is here."""
        path = os.pathsep.join(p for p in (str(EXTENSION_FOLDER), os.environ.get("PYTHONPATH", "")) if p)
        found = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": path}
        if self.cpu:
            found |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
        return found | dict(self.more_variables)

    def __str__(self) -> str:
        """As it would be typed."""
        return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in self.variables.items()), shlex.join(self.command)])
