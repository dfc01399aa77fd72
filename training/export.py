"""Write an encoder as ONNX in few bits, with its vocabulary and its record.

    python training/export.py minilm STARTS TARGET --mix out/student.safetensors=.4 out/student-longer.safetensors=.4
    python training/export.py mpnet STARTS TARGET --mix out/teacher.safetensors=1

STARTS is the folder that `train.py` takes; its weights have the share that the others leave. TARGET gets
`encoder.onnx`, `vocab.txt` and `encoder.json`.

The graph takes `input_ids` and `attention_mask` (int64, batch x sequence) and gives `embedding` (float32, batch x
dims), pooled and normalised. Weights of `minilm` are int8 (seven bits used) per output channel, activations are
quantised as they come. Their scale is one for a whole batch, so a text that must always get the same vector goes in
alone. `mpnet` does not bear that (cosine .89 to the float weights): its weights and word vectors are int4 in blocks of
64, each with a scale in half precision, and it is trained with them so (`four_bits` of a run).
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
from encoder import BLOCK, SHAPES, Encoder, four_bits, layers_of, load, mix

WORDS = "bert.embeddings.word_embeddings.weight"
POSITIONS = 130
"""Of `mpnet`: the first two are not for tokens, and no text is read further than 128."""


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
    """Matrices and word vectors in four bits, as `four_bits` rounds them; activations become int8, block by block."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = (model := onnx.load(str(path))).graph
    held = {one.name: one for one in graph.initializer}
    nodes: list[Any] = []

    def pairs(whole: Any) -> Any:
        """Two numbers a byte, the first in the lower bits."""
        digits = whole.astype("u1")
        return digits[..., ::2] | digits[..., 1::2] << 4

    def rounded(name: str, *, turned: bool) -> Any:
        """The whole numbers of a matrix; its scales go into the graph."""
        values = torch.tensor(numpy_helper.to_array(held[name]))
        whole, scales = four_bits(values.T.contiguous() if turned else values)
        halves = scales.squeeze(-1).half().numpy()
        graph.initializer.append(numpy_helper.from_array(halves.reshape(-1) if turned else halves, f"{name}_scales"))
        graph.initializer.remove(held[name])
        return whole.numpy().astype("i1")

    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in held:
            at = node.input[1]
            blocks = rounded(at, turned=True)
            size = {"N": len(blocks), "K": blocks[0].size, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
            packed = pairs(blocks + 8)
            graph.initializer.append(numpy_helper.from_array(packed, f"{at}_blocks"))
            # The runtime wants scales of the activations' own type; it turns them once, when it loads the file.
            nodes.append(helper.make_node("Cast", [f"{at}_scales"], [f"{at}_wide"], to=TensorProto.FLOAT))
            inputs = [node.input[0], f"{at}_blocks", f"{at}_wide"]
            nodes.append(helper.make_node("MatMulNBits", inputs, node.output, domain="com.microsoft", **size))
        elif node.op_type == "Gather" and node.input[0] == WORDS:
            table = rounded(WORDS, turned=False).reshape(-1)
            packed = pairs(table & 15).tobytes()
            dims = list(held[WORDS].dims)
            graph.initializer.append(helper.make_tensor(f"{WORDS}_blocks", TensorProto.INT4, dims, packed, raw=True))
            inputs = [f"{WORDS}_blocks", node.input[1], f"{WORDS}_scales"]
            size = {"gather_axis": 0, "quantize_axis": 1, "block_size": BLOCK}
            found = [f"{node.output[0]}_half"]
            nodes.append(helper.make_node("GatherBlockQuantized", inputs, found, domain="com.microsoft", **size))
            nodes.append(helper.make_node("Cast", found, node.output, to=TensorProto.FLOAT))
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, str(target))


def export(model: Encoder, target: Path) -> None:
    """Write `encoder.onnx` into the folder `target`."""
    model.bert.set_attn_implementation("eager")
    if model.kind == "mpnet":
        places = model.bert.embeddings.position_embeddings
        places.weight = torch.nn.Parameter(places.weight[:POSITIONS])
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
    if parts:
        model.keep_layers(range(layers_of(parts[0][1])))
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
