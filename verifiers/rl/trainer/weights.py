"""Weights on their way out: one layer after the other, under the names that a Hugging Face folder gives them.

Inference servers take the same names, so what is exported and what is sent are one stream.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from verifiers.rl.trainer.model import PolicyModel
from verifiers.rl.trainer.ranks import Ranks

TOKENIZER_FILES = ("tokenizer*", "special_tokens*", "added_tokens*", "chat_template*", "vocab*", "merges.txt")


def named_weights(model: PolicyModel, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Every weight, whole, on the model's device: at no time more than those of one layer.

    All ranks must go through it together, as each gives its rows. `dtype` is what weights are handed out in (None:
    float32, as they are kept). A matrix that is embedding and head in one comes once, as the embedding.
    """
    causal = model.causal
    tied = set(cast(dict[str, Any], causal.all_tied_weights_keys or {}))
    tensors = causal.state_dict()
    names = [name for name in tensors if name not in tied]
    for _, of_layer in groupby(names, key=_layer):
        # Some models hold several matrices of the folder as one tensor; transformers knows how to take them apart.
        whole = {name: _whole(tensors[name], dtype) for name in of_layer}
        yield from sorted(revert_weight_conversion(causal, whole).items())


def export(
    model: PolicyModel,
    folder: Path,
    ranks: Ranks,
    *,
    source: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = 4 << 30,
) -> None:
    """Writes a folder that transformers and vLLM load: safetensors, configuration, the tokenizer of `source`.

    To be called on all ranks; rank 0 writes, and holds `shard_bytes` at most. The folder appears when it is complete;
    one that exists is replaced.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    if ranks.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    files: list[tuple[Path, list[str]]] = []
    held: dict[str, Tensor] = {}
    total = size = 0
    for name, tensor in named_weights(model, dtype):
        if ranks.rank != 0:
            continue
        bytes_of = tensor.numel() * tensor.element_size()
        if held and size + bytes_of > shard_bytes:
            files.append(_written(partial, len(files), held))
            held, size = {}, 0
        held[name] = tensor.detach().to("cpu", copy=True).contiguous()
        size, total = size + bytes_of, total + bytes_of
    if ranks.rank == 0:
        files.append(_written(partial, len(files), held))
        _name_files(partial, files, total)
        model.causal.config.save_pretrained(partial)
        if model.causal.generation_config is not None and model.causal.can_generate():
            model.causal.generation_config.save_pretrained(partial)
        for pattern in TOKENIZER_FILES:
            for path in Path(source).glob(pattern):
                shutil.copy(path, partial)
        _swap_in(partial, folder)
    ranks.barrier()


def _layer(name: str) -> str:
    """`model.layers.3` of `model.layers.3.mlp.up_proj.weight`: up to the first number."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else name


def _whole(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _written(folder: Path, number: int, tensors: dict[str, Tensor]) -> tuple[Path, list[str]]:
    path = folder / f"part-{number}.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    return path, list(tensors)


def _name_files(folder: Path, files: list[tuple[Path, list[str]]], total_size: int) -> None:
    """How many files there are is in the name of each, and known only now."""
    if len(files) == 1:
        files[0][0].rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for number, (path, names) in enumerate(files, 1):
        file_name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        path.rename(folder / file_name)
        weight_map |= dict.fromkeys(names, file_name)
    index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _swap_in(partial: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
