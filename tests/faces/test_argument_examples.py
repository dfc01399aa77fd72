"""What is typed for an argument and does not fit is answered with how one of its type is typed."""

import pytest

from toolfold.errors import InvalidArguments
from toolfold.faces.cli.arguments import parse_arguments


@pytest.mark.parametrize(("kind", "example"), [("integer", "3"), ("number", "1.5"), ("boolean", "true")])
def test_an_example_of_the_type_is_shown(kind: str, example: str) -> None:
    schema = f'{{"type": "object", "properties": {{"days": {{"type": "{kind}"}}}}}}'.encode()
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["days=two"], schema)
    assert caught.value.next_action == f"write, for example, days={example}"
    shown = caught.value.next_action.rpartition(" ")[2]
    assert parse_arguments([shown], schema)
