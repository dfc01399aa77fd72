"""Write the encoder as int8 ONNX, with its vocabulary and its record.

    python training/export.py                      # the untrained base model
    python training/export.py --weights FILE --share .7 --record FILE     # trained, averaged with the base

The graph takes `input_ids` and `attention_mask` (int64, batch x sequence) and gives `embedding` (float32, batch x
dims), pooled and normalised. Weights are int8 (seven bits used) per output channel, activations are quantised as they
come. Their scale is one for a whole batch, so a text that must always get the same vector goes in alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import warnings
from pathlib import Path

import torch
from encoder import Encoder, base_folder

TARGET = Path(__file__).resolve().parent.parent / "src" / "toolfold" / "search" / "weights"


def to_onnx(model: torch.nn.Module, path: Path) -> None:
    """Trace the module into an ONNX file with free batch and sequence sizes."""
    ids = torch.ones(2, 9, dtype=torch.long)
    axes = {0: "batch", 1: "sequence"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["embedding"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "embedding": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )


def fuse(path: Path, target: Path) -> None:
    """Join attention, layer norm and activation into the runtime's own operators: less time for the same numbers."""
    from onnxruntime.transformers.optimizer import optimize_model

    optimised = optimize_model(str(path), model_type="bert", num_heads=12, hidden_size=384, opt_level=0)
    optimised.save_model_to_file(str(target))


def quantise(path: Path, target: Path) -> None:
    """Dynamic int8 quantisation, one scale for each output channel.

    Weights use seven of the eight bits: processors without VNNI add pairs of products in 16 bits, which overflow with
    eight, and then a file would give other figures on another machine.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # shapes are not known behind the joined operators
    quantize_dynamic(
        str(path), str(target), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True, extra_options=options
    )


def export(model: Encoder, target: Path, record: dict[str, object], *, keep: Path | None = None) -> Path:
    """Write `encoder.onnx`, `vocab.txt` and `encoder.json` into the folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    model.bert.set_attn_implementation("eager")
    with tempfile.TemporaryDirectory() as scratch:
        plain, fused, small = (Path(scratch) / name for name in ("plain.onnx", "fused.onnx", "small.onnx"))
        to_onnx(model, plain)
        fuse(plain, fused)
        quantise(fused, small)
        if keep:
            shutil.copy(fused, keep)
        shutil.copy(small, target / "encoder.onnx")
    shutil.copy(base_folder() / "vocab.txt", target / "vocab.txt")
    digest = {name: hashlib.sha256((target / name).read_bytes()).hexdigest() for name in ("encoder.onnx", "vocab.txt")}
    record = {**record, "dims": 384, "sha256": digest}
    (target / "encoder.json").write_text(json.dumps(record, indent=2) + "\n")
    return target / "encoder.onnx"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--weights", type=Path, help="safetensors written by train.py; without it, the base model")
    parser.add_argument("--share", type=float, default=1.0, help="share of the trained weights; the base has the rest")
    parser.add_argument("--record", type=Path, help="JSON object to keep in encoder.json (version, figures)")
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--keep", type=Path, help="keep the float32 graph here, to compare with")
    options = parser.parse_args()
    model = Encoder(base_folder())
    if options.weights:
        from safetensors.torch import load_file

        base, trained = model.state_dict(), load_file(options.weights)
        share = options.share
        model.load_state_dict({name: share * trained[name].float() + (1 - share) * base[name] for name in base})
    record: dict[str, object] = {"name": "all-MiniLM-L6-v2", "version": "base", "max_tokens": {"query": 64, "tool": 96}}
    if options.record:
        record = json.loads(options.record.read_text())
    path = export(model, options.target, record, keep=options.keep)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
