"""One extraction end to end with a real language model on loopback. It proves the wire, not the wit."""

import asyncio
import json
from pathlib import Path

import pytest
from extract_kit import ask, stored

from toolfold.events import Event
from toolfold.model import Message, Prompt
from toolfold.models.openai_compatible import OpenAICompatible

pytestmark = [pytest.mark.load, pytest.mark.model, pytest.mark.timeout(110)]


@pytest.fixture(scope="module")
def model(real_model: str) -> OpenAICompatible:
    return OpenAICompatible(
        "smollm2", f"{real_model}/v1", context_tokens=2048, max_output_tokens=48, calls_tools=False, timeout_s=90
    )


@pytest.mark.requirement("O-07")
def test_a_real_model_reads_every_chunk_over_the_wire(tmp_path: Path, model: OpenAICompatible) -> None:
    heard: list[Event] = []
    document = stored(tmp_path, "".join(f"ticket {number}: the printer is out of paper\n" for number in range(20)))
    found = ask(document, "which tickets are about the printer", mode="full-chunked", model=model, heard=heard)
    assert found.usage.input_tokens > document.tokens
    assert 0 < found.usage.output_tokens <= 48
    assert heard[-1].data["calls"] == 1
    # So small a model may forget the wrapper; then, and only then, the strategy could not run.
    assert found.strategy == "full-chunked" or "gave no final report for chunk 1" in found.warning
    assert found.text.startswith(f"ABSTRACT FROM TOOL OUTPUT shop.list_orders WITH HANDLE {document.handle}, STRATEGY:")


def test_a_real_model_answers_in_the_form_it_is_asked_for(model: OpenAICompatible) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    asked = Message(role="user", content="The sky is blue. Which colour is it? Answer in JSON.")
    reply = asyncio.run(model.complete(Prompt(messages=(asked,), answer_schema=schema, max_output_tokens=32)))
    found = json.loads(reply.text.strip().removeprefix("```json").removesuffix("```"))
    assert found["colour"] in {"red", "blue"}
