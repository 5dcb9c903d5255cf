"""`packed_attention`: attention of sequences laid end to end, each seeing itself only, for any model of transformers.

Sequences are computed one after the other by torch's own kernels. So no mask of L × L exists, the cost is the sum of
squares of the lengths and not the square of the sum, and no package of kernels is needed; on a GPU torch picks its
flash kernel, as these calls have no mask.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

from verifiers.errors import ConfigError

NAME = "verifiers_packed"


class UnsupportedModel(ConfigError):
    """A model that this trainer would compute wrongly, so it does not."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,  # [1, heads, L, head_dim]
    key: Tensor,  # [1, key heads, L, head_dim]
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sequence_lengths: list[int],
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The interface of transformers' attention functions. Returns [1, L, heads, head_dim]."""
    assert attention_mask is None and query.shape[0] == 1 and sum(sequence_lengths) == query.shape[2]
    for name in ("softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise UnsupportedModel(f"{type(module).__name__} wants attention with {name}, which is not written here")
    parts: list[Tensor] = []
    start = 0
    for length in sequence_lengths:
        span = slice(start, start + length)
        start += length
        mask = _window(length, sliding_window, query.device)
        part = scaled_dot_product_attention(
            query[:, :, span],
            key[:, :, span],
            value[:, :, span],
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=dropout,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        parts.append(part.transpose(1, 2))
    return torch.cat(parts, dim=1), None


def check_packs(config: PreTrainedConfig, model_class: type) -> None:
    """Raises UnsupportedModel for a model in which one sequence of a pack would see another, or that is not plain."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds or not getattr(model_class, "_supports_attention_backend", False):
        found = f"layers of {', '.join(sorted(kinds))}" if kinds else "its own attention"
        raise UnsupportedModel(
            f"{model_class.__name__} has {found}: state would pass from one packed sequence to the next. "
            "Models whose layers are full or sliding-window attention of transformers can be trained"
        )
    for name in ("final_logit_softcapping", "attn_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise UnsupportedModel(
                f"{model_class.__name__} is configured with {name}={getattr(config, name)}, which is not written here"
            )


def _window(length: int, sliding_window: int | None, device: torch.device) -> Tensor | None:
    """Which keys each query sees [length, length]; None: all before it and itself."""
    if sliding_window is None or length <= sliding_window:
        return None
    place = torch.arange(length, device=device)
    distance = place[:, None] - place[None, :]
    return (distance >= 0) & (distance < sliding_window)


AttentionInterface.register(NAME, packed_attention)
