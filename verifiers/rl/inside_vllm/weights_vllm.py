"""`VerifiersEngine`: how a vLLM worker takes new weights from a folder, or tensor by tensor from a trainer.

Runs inside vLLM, where this library need not be installed: this folder is put on `PYTHONPATH`, and
`--worker-extension-cls weights_vllm.WeightExtension` imports it in every worker, in time for
`--weight-transfer-config '{"backend":"verifiers"}'`. `verifiers.rl.launch` writes both.

An update that does not fit the model is refused before any weight has changed. One that breaks off half way leaves the
worker `torn`, which `/collective_rpc weight_state` tells; the next whole update mends it.
"""

# pyright: reportMissingImports=false
# vLLM is never installed beside this library

from __future__ import annotations

import datetime
import json
import logging
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import layerwise

BACKEND = "verifiers"
_SINCE = time.time_ns()
Header = dict[str, list[int]]  # name of a tensor in the checkpoint -> its shape

_log = logging.getLogger("vllm.weights_vllm")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Where the trainer waits, and what it will send each time, in this order."""

    host: str
    port: int
    world_size: int  # of the trainer (rank 0) and all workers of this server
    rank_offset: int
    names: list[str]
    shapes: list[list[int]]
    dtype_names: list[str]
    timeout_s: float = 300.0


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """A folder of safetensors files, or nothing: then the trainer sends what it said at the start."""

    folder: str = ""
    names: list[str] = field(default_factory=list)  # what is sent, to be compared with what was agreed on


class VerifiersEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state = "whole"
        self.loads = 0  # begun: how a caller whose request broke off finds out whether it has changed anything
        self._agreed: InitInfo | None = None
        self._group: Any = None
        self._store: Any = None
        # weights are compared with the checkpoint that the server was started from, where that is a folder
        self._known = header_of(Path(self.model_config.model)) if Path(self.model_config.model).is_dir() else {}

    # --- vLLM's life cycle of an update -----------------------------------------------------------------------------

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Joins the trainer's process group. Raises ValueError for weights that are not this model's."""
        self._check(dict(zip(init_info.names, init_info.shapes, strict=True)))
        self.shutdown()
        config = self.parallel_config
        rank = init_info.rank_offset + config.data_parallel_index * config.world_size + config.rank
        timeout = datetime.timedelta(seconds=init_info.timeout_s)
        self._store = dist.TCPStore(init_info.host, init_info.port, is_master=False, timeout=timeout)
        self._store.add("joined", 1)  # the trainer waits for this before it commits itself to forming the group
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timeout
        # Left to itself, gloo takes what the machine's own name stands for, which is often loopback
        own = address_towards(init_info.host, init_info.port)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=own)]
        self._group = dist.ProcessGroupGloo(self._store, rank, init_info.world_size, options)
        self._agreed = init_info

    def start_weight_update(self) -> None:
        """Nothing yet: what has come is looked at before the old weights are laid aside."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # the base class waits for an accelerator, which a CPU is not
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if update_info.folder:
            folder = Path(update_info.folder)
            self._check(header_of(folder))
            self._load(in_folder(folder))
            return
        if self._agreed is None:
            raise ValueError("no trainer is connected (/init_weight_transfer_engine) and no folder was named")
        if update_info.names and update_info.names != self._agreed.names:
            raise ValueError("the trainer is about to send other tensors than it said when it connected")
        self._load(self._received(self._agreed))

    def finish_weight_update(self) -> None:
        """Nothing left: `update_weights` either did all of it, or failed, and then vLLM does not come here."""

    def shutdown(self) -> None:
        self._group = self._store = self._agreed = None

    # --- the work ---------------------------------------------------------------------------------------------------

    def _load(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        self.state, self.loads = "torn", self.loads + 1
        load(self.model, self.model_config, weights)
        self.state = "whole"

    def _received(self, agreed: InitInfo) -> Iterator[tuple[str, torch.Tensor]]:
        for name, shape, dtype_name in zip(agreed.names, agreed.shapes, agreed.dtype_names, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype_name))
            # as bytes: whatever the type, gloo need not know it
            self._group.broadcast(tensor.reshape(-1).view(torch.uint8), 0).wait()
            yield name, tensor.to(self.device)

    def _check(self, given: Header) -> None:
        check(given, self._known)


class WeightExtension:
    """What `/collective_rpc` can ask of a worker."""

    weight_transfer_engine: Any
    model_runner: Any
    vllm_config: Any

    def weight_state(self) -> dict[str, Any]:
        """The engine's name, whether its last update was whole (`whole`, `torn`), and how many it has begun.

        Another engine knows neither: its state is `unknown`. `since` tells this process from one that took its place.
        """
        engine = self.weight_transfer_engine
        loads = getattr(engine, "loads", 0) + getattr(self, "_reloads", 0)
        state = getattr(engine, "state", "unknown")
        return {"engine": type(engine).__name__, "state": state, "loads": loads, "since": _SINCE}

    def reload_whole(self, folder: str) -> None:
        """vLLM's own `reload_weights`, but for what that forgets on a CPU, and for a folder that it would choke on."""
        with set_current_vllm_config(self.vllm_config):
            model, config = self.model_runner.model, self.vllm_config.model_config
            check(header_of(Path(folder)), {})
            self._reloads = getattr(self, "_reloads", 0) + 1
            load(model, config, in_folder(Path(folder)))


def load(model: torch.nn.Module, model_config: Any, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
    """One tensor after the other goes into its layer, which is repacked in place as soon as it is complete.

    After an error the layers that were still incomplete have their old weights: some are new then, some old, and the
    worker can answer. (Left alone, vLLM's would have no weights at all, and the next request would end the engine.)
    """
    try:
        layerwise.initialize_layerwise_reload(model)
        model.load_weights(weights)
        layerwise.finalize_layerwise_reload(model, model_config)
    except BaseException:
        _lay_back(model)
        raise
    repack_tied(model)


def check(given: Header, known: Header) -> None:
    """Raises ValueError, naming the first tensors that differ, for weights of another model. `known` may be empty."""
    if not given:
        raise ValueError("there are no safetensors in it")
    if not known:
        return
    odd = [name for name in given if name not in known and not _may_be_tied(name)]
    missing = [name for name in known if name not in given and not _may_be_tied(name)]
    other = [name for name in given if name in known and list(given[name]) != known[name]]
    for names, what in ((odd, "not in this model"), (missing, "missing"), (other, "of another shape")):
        if names:
            shown = ", ".join(f"{n} {given.get(n, '')} (here {known.get(n, 'none')})" for n in names[:3])
            raise ValueError(f"{len(names)} tensors are {what}: {shown}")


def repack_tied(model: torch.nn.Module) -> None:
    """Packs the output layer anew from weights that it shares with the embedding.

    On a CPU vLLM multiplies with a packed copy of each matrix. A reload repacks the layers that it loaded, but the
    output layer of a model with tied embeddings is not among them: it would go on with the old weights, behind a 200.
    """
    if not any(hasattr(module, "cpu_linear") for module in model.modules()):
        return
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm  # not in every build for GPUs

    for module in model.modules():
        weight: Any = getattr(module, "weight", None)
        if hasattr(module, "cpu_linear") and isinstance(weight, torch.Tensor) and weight.ndim == 2 and weight.numel():
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _lay_back(model: torch.nn.Module) -> None:
    """Gives the layers that were still waiting for weights their old ones, so that the worker can answer at all."""
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load():
            layerwise._place_kernel_tensors(layer, info)
        info.reset()
    layerwise.LOADING_LAYERS.clear()


def address_towards(host: str, port: int) -> str:
    """Of this machine, as `host` sees it. Nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as found:
        found.connect(address)
        return found.getsockname()[0]


def header_of(folder: Path) -> Header:
    """Names and shapes in the safetensors files of a folder, without reading the tensors."""
    found: Header = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        found |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    return found


def in_folder(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """One tensor at a time; the files are mapped, not read."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)


def _may_be_tied(name: str) -> bool:
    """Checkpoints leave out an output layer that is the embedding; trainers often send it all the same."""
    return name.endswith("lm_head.weight")


WeightTransferEngineFactory.register_engine(BACKEND, VerifiersEngine)
