"""What TRL's asynchronous trainer has on GPUs, for a CPU: its attention, and a server that samples its weights."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from verifiers.rl.token_client import Sampled

GATHER_S = 0.005  # requests that come within this time of each other are one batch


def flash_attn_varlen_func(q, k, v, starts_q, starts_k, longest_q, longest_k, *, softmax_scale, causal, window_size):
    """Attention over segments laid end to end, as flash-attn has it: the last query of each sees all of its keys."""
    assert causal and window_size == (-1, -1)
    segment_q, place_q, segment_k, place_k = *_places(starts_q), *_places(starts_k)
    lengths_q, lengths_k = starts_q.diff(), starts_k.diff()
    seen_until = place_q + (lengths_k - lengths_q)[segment_q]
    mask = (segment_q[:, None] == segment_k) & (place_k <= seen_until[:, None])
    q, k, v = (heads.transpose(0, 1)[None] for heads in (q, k, v))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=mask, scale=softmax_scale, enable_gqa=True)[0].transpose(0, 1)


def _places(starts):
    """The segment of each row, and its place in that."""
    segment = torch.repeat_interleave(starts.diff())
    return segment, torch.arange(len(segment)) - starts[segment]


kernels = SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func)


class Server:
    """A copy of the trainer's model that samples, and TRL's `WeightTransferProtocol` to it.

    New weights come between two tokens: what is being written goes on under them.
    """

    def __init__(self, model: str, end: int, max_tokens: int) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(model)
        self.end, self.max_tokens, self.updates = end, max_tokens, 0
        self._weights = threading.Lock()  # held while they change, and while they make a token
        self._waiting: list[tuple[list[int], asyncio.Future[Sampled]]] = []
        self._generator = torch.Generator().manual_seed(0)
        self._sampling = asyncio.Lock()

    async def __call__(self, prompt_ids: list[int], sampling: dict[str, Any], affinity: str) -> Sampled:
        answer: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, answer))
        await asyncio.sleep(GATHER_S)
        async with self._sampling:
            batch, self._waiting = self._waiting, []
            if batch:
                made = await asyncio.to_thread(self._sampled, [ids for ids, _ in batch])
                for (_, waiting), one in zip(batch, made, strict=True):
                    waiting.done() or waiting.set_result(one)
        return await answer

    @torch.no_grad()
    def _sampled(self, prompts: list[list[int]]) -> list[Sampled]:
        ids_NT = torch.tensor(prompts)  # of one length
        logprobs_NT = torch.empty(len(prompts), 0)
        is_done_N = torch.zeros(len(prompts), dtype=torch.bool)
        while logprobs_NT.shape[1] < self.max_tokens and not is_done_N.all():
            with self._weights:
                logprobs_NV = self.model(ids_NT).logits[:, -1].log_softmax(-1)
            next_N1 = torch.multinomial(logprobs_NV.exp(), 1, generator=self._generator)
            ids_NT = torch.cat([ids_NT, next_N1], 1)
            logprobs_NT = torch.cat([logprobs_NT, logprobs_NV.gather(1, next_N1)], 1)
            is_done_N |= next_N1[:, 0] == self.end
        rows = zip(ids_NT[:, len(prompts[0]) :].tolist(), logprobs_NT.tolist(), strict=True)
        return [self._cut(ids, logprobs) for ids, logprobs in rows]

    def _cut(self, ids: list[int], logprobs: list[float]) -> Sampled:
        length = ids.index(self.end) + 1 if self.end in ids else len(ids)
        return Sampled(ids[:length], logprobs[:length], "stop" if self.end in ids else "length")

    def init_weight_transfer(self) -> None: ...

    def pause(self) -> None:
        self._weights.acquire()

    def send_weights(self, iterator: Any) -> None:
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in iterator:
                own.pop(name).copy_(tensor)
        assert not own, f"not sent: {sorted(own)}"
        self.updates += 1

    def resume(self) -> None:
        self._weights.release()

    def destroy(self) -> None: ...
