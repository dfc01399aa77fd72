"""Write an encoder as ONNX in few bits, with its vocabulary and its record.

    python training/export.py minilm STARTS TARGET --mix out/student.safetensors=.4 out/student-longer.safetensors=.4
    python training/export.py mpnet STARTS TARGET --mix out/teacher.safetensors=1

STARTS is the folder that `train.py` takes; its weights have the share that the others leave. TARGET gets
`encoder.onnx`, `vocab.txt` and `encoder.json`.

The graph takes `input_ids` and `attention_mask` (int64, batch x sequence) and gives `embedding` (float32, batch x
dims), pooled and normalised. Weights of `minilm` are int8 (seven bits used) per output channel, activations are
quantised as they come. Their scale is one for a whole batch, so a text that must always get the same vector goes in
alone. `mpnet` does not bear that (cosine .89 to the float weights): its weights are int4 in blocks of 32, each with
scale and zero, and its word vectors int8 by row (cosine .98).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from encoder import SHAPES, Encoder, load, mix


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


def fuse(path: Path, target: Path, dims: int) -> None:
    """Join attention, layer norm and activation into the runtime's own operators: less time for the same numbers."""
    from onnxruntime.transformers.optimizer import optimize_model

    optimised = optimize_model(str(path), model_type="bert", num_heads=12, hidden_size=dims, opt_level=0)
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


def quantise_blocks(path: Path, target: Path) -> None:
    """Int4 weights in blocks, int8 word vectors."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    # Accuracy level 4: activations become int8, block by block.
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=False, accuracy_level=4, bits=4)
    quantizer = MatMulNBitsQuantizer(onnx.load(str(path)), algo_config=config)
    quantizer.process()
    small = quantizer.model.model
    quantise_rows(small.graph, "bert.embeddings.word_embeddings.weight")
    onnx.save(small, str(target))


def quantise_rows(graph: Any, name: str) -> None:
    """Put int8 rows with a scale each in the place of a table that is looked up."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    table = next(one for one in graph.initializer if one.name == name)
    values = numpy_helper.to_array(table)
    scales = np.abs(values).max(1, keepdims=True) / 127
    lookup = next(node for node in graph.node if node.op_type == "Gather" and node.input[0] == name)
    at, ids, found = list(graph.node).index(lookup), lookup.input[1], lookup.output[0]
    graph.initializer.remove(table)
    graph.node.remove(lookup)
    graph.initializer.append(numpy_helper.from_array(np.rint(values / scales).astype(np.int8), "words"))
    graph.initializer.append(numpy_helper.from_array(scales.astype(np.float32), "words_scale"))
    nodes = (
        helper.make_node("Gather", ["words", ids], ["words_q"], axis=0),
        helper.make_node("Cast", ["words_q"], ["words_f"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["words_scale", ids], ["words_s"], axis=0),
        helper.make_node("Mul", ["words_f", "words_s"], [found]),
    )
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)


def export(model: Encoder, target: Path) -> None:
    """Write `encoder.onnx` into the folder `target`."""
    model.bert.set_attn_implementation("eager")
    with tempfile.TemporaryDirectory() as scratch:
        plain, fused, small = (Path(scratch) / name for name in ("plain.onnx", "fused.onnx", "small.onnx"))
        to_onnx(model, plain)
        fuse(plain, fused, model.shape.dims)
        (quantise if model.kind == "minilm" else quantise_blocks)(fused, small)
        shutil.copy(small, target / "encoder.onnx")


def averaged(kind: str, start: Path, shares: list[str]) -> Encoder:
    """The weights `FILE=SHARE`, and those to start with for what is left."""
    model = Encoder(kind, start)
    parts = []
    for one in shares:
        file, _, share = one.rpartition("=")
        held, state = load(Path(file))
        if held != kind:
            raise ValueError(f"{file} holds weights of {held}")
        parts.append((float(share), state))
    left = 1 - sum(share for share, _ in parts)
    model.load_state_dict(mix([(left, model.state_dict()), *parts]))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(SHAPES))
    parser.add_argument("starts", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mix", nargs="*", default=[], metavar="FILE=SHARE", help="weights that train.py wrote")
    parser.add_argument("--record", type=Path, help="JSON object to keep in encoder.json: name, version, base, figures")
    given = parser.parse_args()
    given.target.mkdir(parents=True, exist_ok=True)
    export(averaged(given.kind, given.starts / given.kind, given.mix), given.target)
    shutil.copy(given.starts / given.kind / "vocab.txt", given.target / "vocab.txt")
    files = ("encoder.onnx", "vocab.txt")
    shape = SHAPES[given.kind]
    record = {
        "name": given.kind,
        "version": "0",
        "max_tokens": {"query": 128, "tool": 48},
        **(json.loads(given.record.read_text()) if given.record else {}),
        "dims": shape.dims,
        "frame": shape.marks[:2],
        "sha256": {name: hashlib.sha256((given.target / name).read_bytes()).hexdigest() for name in files},
    }
    (given.target / "encoder.json").write_text(json.dumps(record, indent=2) + "\n")
    print(given.target, (given.target / "encoder.onnx").stat().st_size)


if __name__ == "__main__":
    main()
