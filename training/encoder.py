"""The two text encoders in torch: the small one that ships, and the large one that teaches it.

What it is: a BERT or MPNet stack with mean pooling and unit length, its tokenizer, and reading and writing of weights,
shared by training and export. What it is not: the runtime. The product reads the exported ONNX file and never imports
torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

State = dict[str, torch.Tensor]
BLOCK = 64
"""Weights in four bits share a scale in blocks of so many."""


@dataclass(frozen=True)
class Shape:
    """What the two architectures differ in."""

    dims: int
    short_dims: int  # the first so many numbers are trained to work alone, too
    pad: int
    marks: tuple[str, str, str, str]  # before a text, behind it, padding, mask


SHAPES = {
    "minilm": Shape(384, 192, 0, ("[CLS]", "[SEP]", "[PAD]", "[MASK]")),
    "mpnet": Shape(768, 384, 1, ("<s>", "</s>", "<pad>", "<mask>")),
}


class Encoder(nn.Module):
    """Token ids and mask in, one unit vector a text out.

    `folder` holds the weights to begin with: for `minilm` the `encoder.onnx` of version 1, for `mpnet` the
    `model.safetensors` of all-mpnet-base-v2.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__()
        self.kind, self.shape = kind, SHAPES[kind]
        self.bert, state = _minilm(folder) if kind == "minilm" else _mpnet(folder)
        missing, _ = self.bert.load_state_dict(state, strict=False)
        if lacking := [name for name in missing if "position_ids" not in name]:
            raise ValueError(f"the weights in {folder} lack {lacking[:3]}")

    def keep_layers(self, layers: Sequence[int]) -> None:
        """Drops all others; the weights are then numbered anew."""
        self.bert.encoder.layer = nn.ModuleList([self.bert.encoder.layer[number] for number in layers])

    def blocked(self) -> list[nn.Module]:
        """The modules whose weights go into four bits: all matrices, and the word vectors."""
        linear = [one for one in self.bert.modules() if isinstance(one, nn.Linear)]
        return [*linear, self.bert.embeddings.word_embeddings]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-6)
        return nn.functional.normalize(pooled.float(), dim=-1)


def _minilm(folder: Path) -> tuple[Any, State]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        attn_implementation="sdpa",
    )
    return BertModel(config, add_pooling_layer=False), dequantised(folder / "encoder.onnx")


def _mpnet(folder: Path) -> tuple[Any, State]:
    from safetensors.torch import load_file
    from transformers import MPNetConfig, MPNetModel

    config = MPNetConfig(vocab_size=30527, layer_norm_eps=1e-5, max_position_embeddings=514)
    return MPNetModel(config, add_pooling_layer=False), load_file(folder / "model.safetensors")


def dequantised(path: Path) -> State:
    """The weights of an int8 file that `export.py` wrote for `minilm`: the float weights of version 1 were not kept.

    Exporting has joined query, key and value into one matrix, turned all matrices round, and left the other three of a
    layer with numbers for names, in order.
    """
    import onnx
    from onnx import numpy_helper

    found = {one.name: numpy_helper.to_array(one) for one in onnx.load(str(path)).graph.initializer}

    def take(name: str) -> torch.Tensor:
        whole = found[f"{name}_quantized"].astype("f4") - found[f"{name}_zero_point"].astype("f4")
        return torch.tensor(whole * found[f"{name}_scale"])

    state: State = {}
    for name, value in found.items():
        own = name.removeprefix("bert.")
        if name.startswith("bert.embeddings"):
            if name.endswith("_quantized"):
                state[own.removesuffix("_quantized")] = take(name.removesuffix("_quantized"))
        elif name.startswith("bert."):
            state[own] = torch.tensor(value)
    numbered = sorted({name.split("_")[1] for name in found if name.startswith("onnx::MatMul_")}, key=int)
    for layer in range(6):
        prefix = f"encoder.layer.{layer}"
        weights = take(f"Attention_{layer}_qkv_weight").split(384, dim=1)
        biases = torch.tensor(found[f"Attention_{layer}_qkv_bias"]).split(384)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            state[f"{prefix}.attention.self.{part}.weight"] = weight.T.contiguous()
            state[f"{prefix}.attention.self.{part}.bias"] = bias.clone()
        parts = ("attention.output.dense", "intermediate.dense", "output.dense")
        for number, part in zip(numbered[layer * 3 : layer * 3 + 3], parts, strict=True):
            state[f"{prefix}.{part}.weight"] = take(f"onnx::MatMul_{number}").T.contiguous()
    return state


def four_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers from -8 to 7 in blocks along the last axis, and the scale of each block, exact in half precision.

    The largest of a block becomes -8, so what this gave back, given again, gives the same.
    """
    blocks = weight.reshape(*weight.shape[:-1], -1, BLOCK)
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scales = (largest / -8).half().float()
    scales = torch.where(scales == 0, 1.0, scales)
    return (blocks / scales).round().clamp(-8, 7), scales


class FourBits(nn.Module):
    """A weight as its four bits give it back; what is learnt passes through to the weight behind them."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            whole, scales = four_bits(weight)
            rounded = (whole * scales).reshape(weight.shape)
        return weight + (rounded - weight).detach()


def mix(shares: Sequence[tuple[float, Mapping[str, torch.Tensor]]]) -> State:
    """A weighted sum of weights: models that began alike can be averaged, and lose less of what they knew."""
    names = shares[0][1]
    return {name: torch.stack([share * state[name].float() for share, state in shares]).sum(0) for name in names}


def save(kind: str, state: Mapping[str, torch.Tensor], path: Path) -> None:
    """Half precision; which architecture it is stands in the file."""
    from safetensors.torch import save_file

    save_file({name: value.half().contiguous().cpu() for name, value in state.items()}, path, {"kind": kind})


def layers_of(state: Mapping[str, torch.Tensor]) -> int:
    return 1 + max(int(name.partition("encoder.layer.")[2].partition(".")[0] or -1) for name in state)


def load(path: Path) -> tuple[str, State]:
    """What `save` wrote."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, "pt") as file:
        kind = file.metadata()["kind"]
    return kind, {name: value.float() for name, value in load_file(path).items()}


class Texts:
    """WordPiece ids of texts. Reads `vocab.txt` only, as the product does."""

    def __init__(self, kind: str, folder: Path) -> None:
        from tokenizers import BertWordPieceTokenizer

        first, last, pad, mask = SHAPES[kind].marks
        self.pad = SHAPES[kind].pad
        self.tokenizer = BertWordPieceTokenizer(
            str(folder / "vocab.txt"), lowercase=True, cls_token=first, sep_token=last, pad_token=pad, mask_token=mask
        )

    def ids(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        # Long texts are cut before the tokenizer sees them: a token has at least one character, most have four.
        encoded = self.tokenizer.encode_batch([text[: limit * 12] for text in texts])
        return [one.ids if len(one.ids) <= limit else [*one.ids[: limit - 1], one.ids[-1]] for one in encoded]
