"""Python functions as tool definitions: what their signatures, hints and docstrings say."""

import dataclasses
import enum
import functools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema  # type: ignore[import-untyped]  # it ships no types; only `validate` is used
import msgspec
import pydantic
import pytest
from msgspec import Meta, Raw

from toolfold.errors import ConfigError, InvalidArguments
from toolfold.types import Annotations
from toolfold.upstream.function_tool import FunctionTool, make_function_tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Part:
    """A part of a thing."""

    name: str
    parts: "list[Part]" = dataclasses.field(default_factory=list)


class Filter(TypedDict):
    word: str
    limit: NotRequired[int]


class Order(msgspec.Struct):
    id: int
    colour: Colour = Colour.RED


class Item(pydantic.BaseModel):
    sku: str
    price: Annotated[float, pydantic.Field(gt=0)]
    inside: "list[Item]" = []


def schema_of(function: Any) -> Any:
    return json.loads(bytes(make_function_tool(function).definition.input_schema))


def call(function: Any, **arguments: Any) -> Any:
    made = make_function_tool(function)
    encoded = json.dumps(arguments).encode()
    jsonschema.validate(json.loads(encoded), json.loads(bytes(made.definition.input_schema)))
    value = made.bind(Raw(encoded))()
    result = json.loads(bytes(made.result(value)))
    if made.definition.output_schema is not None:
        jsonschema.validate(result["structuredContent"], json.loads(bytes(made.definition.output_schema)))
    return value


def refused(made: FunctionTool, arguments: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        made.bind(Raw(arguments.encode()))
    return caught.value.message


def test_name_description_parameters_and_defaults() -> None:
    def find(word: str, limit: int = 10, exact: bool | None = None) -> list[str]:
        """Find words.

        Args:
            word: What to look for.
            limit: How many.
        """
        return [word] * limit

    made = make_function_tool(find)
    assert made.definition.name == "find"
    assert made.definition.description == "Find words."
    assert schema_of(find) == {
        "type": "object",
        "properties": {
            "word": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "How many.", "default": 10},
            "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "required": ["word"],
        "additionalProperties": False,
    }
    assert call(find, word="a", limit=2) == ["a", "a"]


@pytest.mark.parametrize(
    ("hint", "value", "seen"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (str, "x", "x"),
        (int | None, None, None),
        (int | str, "x", "x"),
        (Literal["a", "b"], "b", "b"),
        (Colour, "blue", Colour.BLUE),
        (list[int], [1, 2], [1, 2]),
        (set[str], ["a"], {"a"}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Part, {"name": "a", "parts": [{"name": "b"}]}, Part("a", [Part("b")])),
        (Filter, {"word": "a"}, {"word": "a"}),
        (Order, {"id": 1, "colour": "blue"}, Order(1, Colour.BLUE)),
        (Item, {"sku": "a", "price": 1.5, "inside": [{"sku": "b", "price": 2}]}, None),
        (list[Item], [{"sku": "a", "price": 1}], [Item(sku="a", price=1)]),
        (date, "2024-05-06", date(2024, 5, 6)),
        (Any, {"free": [1]}, {"free": [1]}),
    ],
    ids=str,
)
def test_arguments_arrive_as_the_hinted_types(hint: Any, value: Any, seen: Any) -> None:
    def take(given):  # type: ignore[no-untyped-def]  # the hint is the test's parameter
        return given

    take.__annotations__ = {"given": hint, "return": hint}
    expected = seen if seen is not None or value is None else hint(**value)
    assert call(take, given=value) == expected


def test_every_wrong_argument_is_named_with_what_was_expected() -> None:
    def take(count: int, order: Order, items: list[Item], colour: Colour = Colour.RED) -> None: ...

    message = refused(
        make_function_tool(take),
        '{"order": {"id": "x"}, "items": [{"sku": 1, "price": 0}], "colour": "green", "other": 1}',
    )
    assert "`count` is missing" in message
    assert "`order.id`: expected `int`, got `str`" in message
    assert "`items[0]`: `sku`: Input should be a valid string" in message
    assert "`colour`: invalid enum value 'green'" in message
    assert "`other` is no argument of this tool" in message
    assert "https://" not in message


@pytest.mark.parametrize("arguments", ["[]", "1", "", '{"count": 1', '"text"', '{"count": \xff}'])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    def take(count: int) -> None: ...

    made = make_function_tool(take)
    with pytest.raises(InvalidArguments, match="take: "):
        made.bind(Raw(arguments.encode("latin-1")))


def test_descriptions_and_bounds_from_annotated() -> None:
    def take(
        a: Annotated[int, "The a."],
        b: Annotated[str, Meta(description="The b.", min_length=2)],
        c: Annotated[str, pydantic.Field(description="The c.")],
    ) -> None:
        """Take.

        Args:
            a: Not this.
        """

    properties = schema_of(take)["properties"]
    assert properties["a"] == {"type": "integer", "description": "The a."}
    assert properties["b"] == {"type": "string", "minLength": 2, "description": "The b."}
    assert properties["c"] == {"type": "string", "description": "The c."}
    assert "`b`: expected `str` of length >= 2" in refused(make_function_tool(take), '{"a": 1, "b": "x", "c": ""}')


def test_positional_only_parameters_are_named_like_all_others() -> None:
    def take(a: int, b: int = 2, c: int = 3, /, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert call(take, a=1, c=5) == [1, 2, 5, 4]


def test_a_recursive_type_is_defined_once_and_stands_whole_at_the_root_of_the_output() -> None:
    def get() -> Part:
        return Part("a", [Part("b")])

    output = json.loads(bytes(make_function_tool(get).definition.output_schema or b""))
    assert output["type"] == "object"
    assert output["$defs"]["Part"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert call(get) == Part("a", [Part("b")])


def test_what_is_no_object_stands_under_result() -> None:
    def get() -> list[Order]:
        return [Order(1)]

    made = make_function_tool(get)
    result = json.loads(bytes(made.result(get())))
    assert result["structuredContent"] == {"result": [{"id": 1, "colour": "red"}]}
    assert json.loads(result["content"][0]["text"]) == [{"id": 1, "colour": "red"}]
    call(get)


def test_a_text_is_only_a_text_and_nothing_is_done() -> None:
    def say() -> str:
        return "hello"

    def do() -> None: ...

    said, did = make_function_tool(say), make_function_tool(do)
    assert said.definition.output_schema is None
    assert json.loads(bytes(said.result("hello"))) == {"content": [{"type": "text", "text": "hello"}]}
    assert json.loads(bytes(did.result(None))) == {"content": [{"type": "text", "text": "Done."}]}


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: 1])
def test_a_result_without_a_json_form_is_an_error_result(value: Any) -> None:
    def get():  # type: ignore[no-untyped-def]  # any value is the test's point
        return value

    result = json.loads(bytes(make_function_tool(get).result(value)))
    assert result["isError"] is True
    assert "has no JSON form" in result["content"][0]["text"]


def test_marks_give_names_titles_and_claims() -> None:
    @tool(name="orders.cancel", title="Cancel", description="Cancel an order.", destructive=True, read_only=False)
    def cancel(order: int) -> None:
        """Not this."""

    definition = make_function_tool(cancel).definition
    assert (definition.name, definition.title, definition.description) == (
        "orders.cancel",
        "Cancel",
        "Cancel an order.",
    )
    assert definition.annotations == Annotations(read_only=False, destructive=True)


def test_methods_and_partials_are_functions_too() -> None:
    class Shop:
        @tool(read_only=True)
        def find(self, word: str, limit: int = 1) -> str:
            """Find."""
            return f"{word}{limit}"

    assert call(Shop().find, word="a") == "a1"
    assert make_function_tool(Shop().find).definition.annotations.read_only is True
    assert call(functools.partial(Shop().find, limit=5), word="a") == "a5"


def stars(*names: str) -> None: ...
def more_stars(**options: str) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def unknown_hint(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is what is tested
def odd_hint(a: type[int] | Iterator[str]) -> None: ...
def größe() -> None: ...  # noqa: PLC2401 - a name that is no tool name


@pytest.mark.parametrize(
    ("function", "why", "what_to_do"),
    [
        (stars, r"takes \*names", "names: list"),
        (more_stars, r"takes \*\*options", "options: dict"),
        (generator, "is a generator", "Return a list"),
        (async_generator, "is a generator", "Return a list"),
        (unknown_hint, "cannot be resolved.*Missing", "Import the type"),
        (odd_hint, "no JSON form", "dataclasses"),
        (größe, "no tool name", "@tool"),
        (lambda: 1, "no tool name", "@tool"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_reason_and_a_way_out(function: Any, why: str, what_to_do: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        make_function_tool(function)
    assert what_to_do in caught.value.next_action


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from toolfold.upstream.function_tool import make_function_tool\n"
        "def f(a: int) -> list[str]: return []\n"
        "make_function_tool(f)\n"
        "print([name for name in ('pydantic', 'asyncio', 'httpx2', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_object_in_a_hint_means_anything() -> None:
    def rows(filters: dict[str, object]) -> list[dict[str, object]]:
        """Rows that fit."""
        return [filters]

    made = make_function_tool(rows)
    assert json.loads(bytes(made.definition.input_schema))["properties"]["filters"]["type"] == "object"
    result = json.loads(bytes(made.result(made.bind(Raw(b'{"filters": {"a": [1, null]}}'))())))
    assert result["structuredContent"] == {"result": [{"a": [1, None]}]}


def test_15_18_a_whole_number_with_a_point_is_an_integer() -> None:
    def add(count: int, further: list[int], text: str) -> str:
        """Adds."""
        return f"{count + sum(further)} {text}"

    bound = make_function_tool(add).bind(Raw(b'{"count": 1.0, "further": [2.00, 3], "text": "4.0"}'))
    assert bound() == "6 4.0"
    with pytest.raises(InvalidArguments):
        make_function_tool(add).bind(Raw(b'{"count": 1.5, "further": [], "text": ""}'))
