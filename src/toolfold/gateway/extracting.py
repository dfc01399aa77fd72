"""`toolfold extract`: a question to a local file, with the configured model where there is one. Needs no gateway."""

from pathlib import Path
from typing import Any

from toolfold.config import Settings
from toolfold.gateway.storing import configured_model
from toolfold.outputs.asking import extract_blocking


def extract_file(settings: Settings, document: Path | bytes, request: str, mode: Any) -> dict[str, Any]:
    """The answer and its facts."""
    model = configured_model(settings)
    found = extract_blocking(document, request, mode=mode, model=model, options=settings.outputs)
    return {
        "text": found.text,
        "strategy": found.strategy,
        "failed": found.failed,
        "warning": found.warning,
        "model": model.name if model is not None else None,
        "usage": {
            "input_tokens": found.usage.input_tokens,
            "output_tokens": found.usage.output_tokens,
            "cost": found.usage.cost,
        },
    }
