"""Measure an exported ONNX encoder on the test requests, on the CPU, one text at a time as the product does.

    evaluate.py DATA ENCODER.onnx VOCAB [--sets a,b] [--query 128] [--tool 64]

DATA is the folder that prepare.py wrote. Prints the figures of each set and the CPU time of a text.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoder import Texts
from train import Data, figures, standard


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def embed(session: Any, texts: Texts, lines: list[str], limit: int) -> tuple[torch.Tensor, float]:
    """Vectors, and CPU milliseconds a text."""
    found = []
    ids = texts.ids(lines, max_tokens=limit)
    started = time.process_time()
    for one in ids:
        tokens = np.array([one], dtype=np.int64)
        found.append(session.run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})[0])
    spent = (time.process_time() - started) * 1000 / len(ids)
    return torch.from_numpy(np.concatenate(found)), spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--sets", default="metatool,sealtools,toolbench,toollens,mcpflow_toucan,mcptoolbenchpp")
    parser.add_argument("--query", type=int, default=128)
    parser.add_argument("--tool", type=int, default=64)
    options = parser.parse_args()
    data = Data(options.data)
    session = open_session(options.encoder)
    texts = Texts(options.vocabulary, max_tokens=64)
    for name in options.sets.split(","):
        test = data.bundle["tests"][name]
        tools, tool_ms = embed(session, texts, test["tools"], options.tool)
        queries, query_ms = embed(session, texts, test["queries"], options.query)
        lexical, dense = torch.from_numpy(data.arrays[f"lexical_{name}"].astype(np.float32)), queries @ tools.T
        row: dict[str, Any] = {"set": name, "query_ms": round(query_ms, 2), "tool_ms": round(tool_ms, 2)}
        for part in (0.4, 0.25, 0.0):
            row[f"words {part}"] = figures(part * standard(lexical) + (1 - part) * standard(dense), test["relevant"])
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
