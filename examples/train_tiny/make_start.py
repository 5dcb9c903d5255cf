"""Makes the model that train.toml starts from:  python make_start.py FOLDER

0.8 million parameters and a vocabulary of single letters, from random weights; then a short supervised start, by the
library's own trainer, after which it reverses a word of five letters in about two tries of five. Needs torch and
transformers (the extra `train`); 10 s on a quiet core. The seed is fixed: the model is the same each time on a machine.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

LETTERS = "abcdefghij"
SPECIALS = ["<end>", "<user>", "<assistant>", "<pad>", "<unk>"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHATS, BATCH = 2688, 64  # 42 steps


def main(folder: Path) -> None:
    import torch

    from verifiers.rl.chat_tokenizer import load_chat_tokenizer
    from verifiers.rl.render import TemplateRenderer
    from verifiers.rl.trainer.config import ModelConfig, OptimConfig
    from verifiers.rl.trainer.conversations import DataConfig
    from verifiers.rl.trainer.supervised import StageConfig, SupervisedConfig, train_supervised

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    write_random_model(folder / "random")
    chats = folder / "chats.jsonl"
    chats.write_text("".join(f"{json.dumps(chat)}\n" for chat in conversations(CHATS)))
    config = SupervisedConfig(
        model=ModelConfig(path=str(folder / "random")),
        stages=[
            StageConfig(
                name="start",
                data=DataConfig(chats=[str(chats)], batch_size=BATCH, seq_len=BATCH * 16),
                optim=OptimConfig(lr=3e-3, warmup_steps=10),
            )
        ],
        folder=str(folder),
    )

    def told(stage: str, step: int, steps: int, metrics: dict[str, float]) -> None:
        if step % 20 == 0 or step == steps - 1:
            print(f"{stage} {step + 1}/{steps}  loss {metrics['loss']:.3f}", flush=True)

    model = train_supervised(config, TemplateRenderer(load_chat_tokenizer(folder / "random")), on_step=told)
    print(f"model: {model}")


def conversations(count: int) -> Iterator[dict[str, object]]:
    generator = random.Random(0)
    for _ in range(count):
        word = "".join(generator.choice(LETTERS) for _ in range(5))
        yield {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word[::-1]}]}


def write_random_model(folder: Path) -> None:
    import torch
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = Tokenizer(models.WordLevel({token: n for n, token in enumerate([*SPECIALS, *LETTERS])}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    words.decoder = decoders.Fuse()
    words.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=16,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=3,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
