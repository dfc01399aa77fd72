"""A document of brackets is refused before a parser recurses into it."""

from pathlib import Path

import pytest

from toolfold.agent.definition import _split_front_matter
from toolfold.errors import ConfigError, ServerUnavailable
from toolfold.upstream.openapi.document import _parse_document
from toolfold.yaml_reader import load_yaml

DEEP = ["[" * 50_000, "{a: " * 20_000, "- " * 20_000 + "a", "? " * 5_000 + "a", "x: " + "[" * 300 + "]" * 300]


@pytest.mark.parametrize("text", DEEP)
def test_15_14_yaml_however_deep_is_refused_and_ends_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        load_yaml(text)
    with pytest.raises(ServerUnavailable):
        _parse_document(text.encode(), "the document")


def test_15_14_yaml_as_deep_as_real_documents_is_read() -> None:
    value = load_yaml("x: " + "[" * 150 + "]" * 150)
    assert isinstance(value["x"], list)


@pytest.mark.parametrize("body", [b"{" * 50_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
def test_15_14_json_however_deep_is_refused(body: bytes) -> None:
    with pytest.raises(ServerUnavailable):
        _parse_document(body, "the document")


@pytest.mark.parametrize("text", DEEP[:2])
def test_15_14_front_matter_however_deep_is_a_configuration_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        _split_front_matter(tmp_path / "agent.md", f"---\n{text}\n---\n")
