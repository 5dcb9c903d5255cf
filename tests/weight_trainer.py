"""A trainer as far as its weights go, in a process that has torch:  python weight_trainer.py

Reads commands as JSON, one a line, and answers each in one line. `WeightTrainer` is the other end. It runs in vLLM's
virtual environment, which has torch, transformers and all that the pool needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class WeightTrainer:
    """`with WeightTrainer(python) as trainer: trainer.make(…)`."""

    def __init__(self, python: Path) -> None:
        variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [python, __file__], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> WeightTrainer:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(60)
        process.stdout.close()

    def ask(self, command: str, **arguments: Any) -> Any:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def make(self, folder: Path, like: Path, *, seed: int, tied: bool = True, scale: int = 1) -> Path:
        """A checkpoint of the shape of `like` with other random weights, `scale` times as wide inside."""
        self.ask("make", folder=str(folder), like=str(like), seed=seed, tied=tied, scale=scale)
        return folder

    def logprobs(self, folder: Path, prompt: list[int], reply: list[int]) -> list[float]:
        """Of the reply's tokens, as a trainer computes them in float32."""
        return self.ask("logprobs", folder=str(folder), prompt=prompt, reply=reply)

    def send(self, folder: Path, url: str, version: int, *, fault: str = "") -> dict[str, Any]:
        """Updates a server by gloo: {"failed": {url: reason}, "paused_s": …}. `fault`: what goes wrong on the way."""
        return self.ask("send", folder=str(folder), url=url, version=version, fault=fault)


# --- inside ---------------------------------------------------------------------------------------------------------


def make(folder: str, like: str, seed: int, tied: bool, scale: int) -> None:
    import shutil

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(like)
    config.tie_word_embeddings = tied
    config.intermediate_size *= scale
    config.initializer_range = 0.08  # what a token means depends on those before it
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    model.save_pretrained(folder)


def nccl(names: list[str]) -> dict[str, Any]:
    """What vLLM's own engine reads out of what our sender would tell it."""
    import dataclasses

    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferInitInfo, NCCLWeightTransferUpdateInfo

    from verifiers.rl.ways import TensorSpec, columns, nccl_init_info

    begun = NCCLWeightTransferInitInfo(**nccl_init_info(bytes(range(128)), 3))
    sent = NCCLWeightTransferUpdateInfo(**columns([TensorSpec(name, (2, 3), "bfloat16") for name in names]))
    id_is_kept = begun.nccl_unique_id_bytes == bytes(range(128))
    return {"init": dataclasses.asdict(begun), "id_is_kept": id_is_kept, "update": dataclasses.asdict(sent)}


def logprobs(folder: str, prompt: list[int], reply: list[int]) -> list[float]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])[:, 0].tolist()


_senders: dict[str, Any] = {}  # by URL: connections last over several updates


def send(folder: str, url: str, version: int, fault: str) -> dict[str, Any]:
    return _loop.run_until_complete(_send(folder, url, version, fault))


async def _send(folder: str, url: str, version: int, fault: str) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    from verifiers.rl.inference import InferencePool, UpdateError
    from verifiers.rl.ways import TensorSpec
    from verifiers.rl.weights import WeightSender

    model = AutoModelForCausalLM.from_pretrained(folder)
    named = list(model.named_parameters())
    manifest = [TensorSpec.of(name, tensor) for name, tensor in named]
    if url not in _senders or _senders[url].manifest != manifest:
        _senders[url] = WeightSender(manifest, timeout_s=60)
    pool = InferencePool([url], model="tiny", version=version - 1)
    try:
        await pool.start()
        report = (await pool.update(version, _senders[url].weights(_faulty(named, fault)))).__dict__
    except UpdateError as error:
        report = error.report.__dict__
    finally:
        await pool.close()
    serving = [server.out for server in pool.servers]
    return {**report, "out": serving[0]}


def _faulty(named: list[Any], fault: str) -> Iterator[Any]:
    for number, (name, tensor) in enumerate(named):
        if fault == "breaks off" and number == len(named) // 2:
            raise RuntimeError("the trainer ran out of memory")
        if fault == "renamed" and number == 3:
            name = "another.weight"
        yield name, tensor


_loop = asyncio.new_event_loop() if __name__ == "__main__" else None


def main() -> None:
    import torch

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    commands = {"make": make, "nccl": nccl, "logprobs": logprobs, "send": send}
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(commands[asked.pop("command")](**asked)), file=answers, flush=True)


if __name__ == "__main__":
    main()
