"""Measure an exported encoder on the tests, on the CPU, one text at a time as the product does.

    evaluate.py DATA FOLDER [--tests a,b] [--query 128] [--tool 48]

DATA is what `prepare.py` wrote, FOLDER what `export.py` did. Prints the figures of each test, with several shares of
words, and the CPU time of a text.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoder import SHAPES, Texts
from train import TESTED_REQUEST_TOKENS, TESTED_TOOL_TOKENS, WORD_SHARES, Data, figures, mixed


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def embed(session: Any, texts: Texts, lines: list[str], limit: int) -> tuple[torch.Tensor, float]:
    """Vectors, and CPU milliseconds a text."""
    found = []
    ids = texts.ids(lines, limit)
    started = time.process_time()
    for one in ids:
        tokens = np.array([one], dtype=np.int64)
        found.append(session.run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})[0])
    spent = (time.process_time() - started) * 1000 / len(ids)
    return torch.from_numpy(np.concatenate(found)), spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", default="", help="names between commas; without: all")
    parser.add_argument("--query", type=int, default=TESTED_REQUEST_TOKENS)
    parser.add_argument("--tool", type=int, default=TESTED_TOOL_TOKENS)
    given = parser.parse_args()
    data = Data(given.data)
    session = open_session(given.folder / "encoder.onnx")
    dims = json.loads((given.folder / "encoder.json").read_text())["dims"]
    texts = Texts(next(kind for kind, shape in SHAPES.items() if shape.dims == dims), given.folder)
    for name in given.tests.split(",") if given.tests else data.bundle["tests"]:
        test = data.bundle["tests"][name]
        tools, tool_ms = embed(session, texts, test["tools"], given.tool)
        queries, query_ms = embed(session, texts, test["queries"], given.query)
        lexical = torch.from_numpy(data.arrays[f"lexical_{name}"].astype(np.float32))
        row: dict[str, Any] = {"test": name, "query_ms": round(query_ms, 2), "tool_ms": round(tool_ms, 2)}
        for share in WORD_SHARES:
            row[f"words {share}"] = figures(mixed(lexical, queries @ tools.T, share), test["relevant"])
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
