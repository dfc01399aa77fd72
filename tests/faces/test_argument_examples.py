"""What is typed for an argument and does not fit is answered with how one of its type is typed."""

import json

import pytest

from toolfold.errors import InvalidArguments
from toolfold.faces.cli.arguments import parse_arguments

CAKE = {
    "type": "object",
    "properties": {
        "layers": {"type": "array", "items": {"type": "object", "properties": {"dough": {"type": "string"}}}},
        "box": {"type": "object"},
    },
}
SCHEMA = json.dumps({"type": "object", "properties": {"cake": CAKE}}).encode()


@pytest.mark.parametrize("key", ["cake.layers.0.dough", "cake.layers.dough"])
def test_an_item_of_a_list_is_not_typed_by_its_place(key: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments([f"{key}=nut"], SCHEMA)
    assert caught.value.message == f"{key}: cake.layers is a list"
    assert caught.value.next_action == """write it as JSON: 'cake.layers:=[{"dough": …}]'"""
    assert parse_arguments(['cake.layers:=[{"dough": "nut"}]', "cake.box.0=x"], SCHEMA)


@pytest.mark.parametrize(("kind", "example"), [("integer", "3"), ("number", "1.5"), ("boolean", "true")])
def test_an_example_of_the_type_is_shown(kind: str, example: str) -> None:
    schema = f'{{"type": "object", "properties": {{"days": {{"type": "{kind}"}}}}}}'.encode()
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["days=two"], schema)
    assert caught.value.next_action == f"write, for example, days={example}"
    shown = caught.value.next_action.rpartition(" ")[2]
    assert parse_arguments([shown], schema)
