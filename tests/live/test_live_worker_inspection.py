"""The sections of `inspect`, made in the test's own process, with and without user code."""

import array
import asyncio
import collections
import decimal
import inspect
import io
import math
import mmap
import re
import types
import weakref
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from typing import Any

import pytest

from toolfold.live.worker import inspection, limits
from toolfold.live.worker.frames import dumps
from toolfold.live.worker.originals import NeedsFork
from toolfold.live.worker.sources import SourceCache


def described(value: object, *, user_code: bool = True) -> dict[str, Any]:
    """The answer of `inspect`, as a forked child would make it."""
    ready = dict(inspection.sections(value, SourceCache(), user_code=user_code))
    ready.pop("at", None)
    return inspection.assemble(ready)


def numbers() -> Generator[int, None, None]:
    yield 1


async def async_numbers() -> AsyncIterator[int]:
    yield 1


class Plain:
    """A plain object."""


class Called:
    def __call__(self, number: int = 1) -> int:
        """Calls it."""
        return number


class Lookup(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(("a",))

    def __len__(self) -> int:
        return 1


TARGET = Plain()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *((None, "none"), (True, "bool"), (1, "number"), (1j, "number"), (decimal.Decimal(1), "number")),
        *((int, "class"), (math, "module"), (ValueError(), "exception"), (numbers(), "generator")),
        *((async_numbers(), "async_generator"), ("x", "string"), (b"x", "bytes"), (memoryview(b"x"), "bytes")),
        *(({}, "mapping"), (Lookup(), "mapping"), (types.MappingProxyType({}), "mapping"), (set(), "set")),
        *(({}.keys(), "set"), ([], "sequence"), (range(2), "sequence"), (array.array("b"), "sequence")),
        *((..., "other"), (NotImplemented, "other"), (io.StringIO(), "object"), (weakref.proxy(TARGET), "object")),
        *((iter([]), "iterator"), (len, "callable"), (Called(), "callable"), (Plain(), "object")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_kind_of_an_object_follows_from_its_real_type(value: object, kind: str) -> None:
    assert inspection._kind_of(value) == kind


def test_the_state_of_a_generator_is_read_without_advancing_it() -> None:
    generator = numbers()
    assert described(generator, user_code=False)["state"] == "created"
    next(generator)
    assert described(generator, user_code=False)["state"] == "suspended"
    generator.close()
    assert described(generator, user_code=False)["state"] == "finished"

    def looks_at_itself() -> Iterator[Any]:
        yield inspection._generator_state(itself)

    itself = looks_at_itself()
    assert next(itself) == "running"
    assert inspection._generator_state([]) is None


def test_a_coroutine_that_was_never_awaited_is_created_and_stays_so() -> None:
    waiting = asyncio.sleep(0)
    assert inspection._kind_of(waiting) == "coroutine"
    assert described(waiting)["state"] == "created"
    waiting.close()
    assert described(waiting)["state"] == "finished"


@pytest.mark.parametrize(
    ("value", "items", "total"),
    [
        ([1, "a"], ["1", "'a'"], 2),
        ((1,), ["1"], 1),
        ({"a": 1}, ["'a': 1"], 1),
        ({2, 1}, ["1", "2"], 2),
        (frozenset({1}), ["1"], 1),
        (collections.deque([1]), ["1"], 1),
        (array.array("b", [1, 2]), ["1", "2"], 2),
        (memoryview(b"ab"), ["97", "98"], 2),
        (types.MappingProxyType({"a": 1}), ["'a': 1"], 1),
        ({"a": 1}.keys(), ["'a'"], 1),
        ({"a": 1}.values(), ["1"], 1),
        ({"a": 1}.items(), ["('a', 1)"], 1),
        (range(100), [str(number) for number in range(16)], 100),
        (range(0), [], 0),
        (range(2**70), [str(number) for number in range(16)], 2**70),
    ],
)
def test_a_built_in_container_is_sampled_from_its_start(value: object, items: list[str], total: int) -> None:
    answer = described(value)
    assert answer["sample"] == {"items": items, "shown": len(items), "total": total, "truncated": total > len(items)}
    assert answer["size"]["len"] == total


def test_a_memory_map_is_sampled_without_being_moved() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped.seek(7)
        answer = described(mapped)
        assert answer["sample"]["total"] == 4096
        assert mapped.tell() == 7


@pytest.mark.parametrize(
    "value",
    [
        *(types.MappingProxyType({}), Lookup(), Called(), ValueError(), len),
        types.SimpleNamespace(__doc__=7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_run_user_code_is_left_to_a_forked_child(value: object) -> None:
    with pytest.raises(NeedsFork):
        inspection.describe_static(value, SourceCache())
    assert described(value)["limits"] == limits.LIMITS


def test_plain_data_is_described_without_a_fork() -> None:
    answer = inspection.describe_static({"a": [1, 2]}, SourceCache())
    assert list(answer) == ["type", "kind", "repr", "size", "sample", "members", "limits"]
    assert answer["type"] == {"name": "dict", "module": "builtins", "qualified": "builtins.dict"}
    assert answer["repr"]["text"] == "{'a': [1, 2]}"


def test_a_method_that_raises_becomes_the_error_of_its_section() -> None:
    class Broken:
        @property
        def __doc__(self) -> str:  # type: ignore[override]
            raise ValueError("no doc")

        def __len__(self) -> int:
            raise ValueError("no length")

        def __repr__(self) -> str:
            raise ValueError("no repr")

        def __dir__(self) -> list[str]:
            raise ValueError("no names")

    answer = described(Broken())
    assert answer["doc_error"] == "ValueError: no doc"
    assert answer["len_error"] == "ValueError: no length"
    assert answer["repr_error"] == "ValueError: no repr"
    assert answer["dir_error"] == "ValueError: no names"
    assert re.search(r"Broken object at 0x", answer["repr"]["text"])


def test_the_names_of_an_own_dir_join_the_static_ones() -> None:
    class Listed:
        real = 1

        def __dir__(self) -> Any:
            return ["virtual", 5]

    class Endless:
        def __dir__(self) -> Any:
            return (f"n{number}" for number in range(limits.NAMES_MAX + 5))

    class Static:
        __dir__ = staticmethod(lambda: ["fixed"])

    assert described(Listed())["members"]["data"] == ["real", "virtual"]
    assert described(Static())["members"]["data"] == ["fixed"]
    assert described(Endless())["members"]["truncated"] is True


def test_members_are_grouped_with_public_names_before_private_ones() -> None:
    many = types.SimpleNamespace(**{f"_p{number:02}": 1 for number in range(20)}, **{f"q{n:02}": 1 for n in range(20)})
    many.call = len
    section = described(many)["members"]
    assert section["callables"] == ["call"]
    assert len(section["data"]) == limits.MEMBERS_MAX
    assert [name for name in section["data"] if name[0] == "q"] == [f"q{number:02}" for number in range(20)]
    assert section["truncated"] is True


@pytest.mark.parametrize(
    ("doc", "section", "error"),
    [
        ("short", {"text": "short", "truncated": False, "original_len": 5}, None),
        ("x" * 5000, {"text": "x" * 4096, "truncated": True, "original_len": 5000}, None),
        (None, None, None),
        (7, None, "_DocNotText: __doc__ is of type int"),
    ],
)
def test_a_doc_is_shown_bounded_and_must_be_text(doc: object, section: object, error: str | None) -> None:
    answer = described(types.SimpleNamespace(__doc__=doc))
    assert answer.get("doc") == section
    assert answer.get("doc_error") == error


def test_a_doc_computed_by_a_property_is_read_in_the_child() -> None:
    class Computed:
        answer: Any = "made up"

        @property
        def __doc__(self) -> Any:  # type: ignore[override]
            return self.answer

    computed = Computed()
    assert described(computed)["doc"]["text"] == "made up"
    computed.answer = None
    assert "doc" not in described(computed)


@pytest.mark.parametrize(
    ("shape", "size"),
    [((2, 3), {"len": 2, "shape": [2, 3]}), ((), {"shape": []}), ("odd", {"len": 2}), (None, {"len": 2})],
)
def test_the_shape_of_an_array_is_known_by_its_library(shape: object, size: dict[str, Any]) -> None:
    names = {"__module__": "numpy.core", "shape": property(lambda self: shape), "__len__": lambda self: 2}
    value = type("ndarray", (), names)()
    assert described(value)["size"] == size
    with pytest.raises(NeedsFork):
        inspection.describe_static(value, SourceCache())


def typed_function(code: str, sources: SourceCache) -> Any:
    """A function as the prompt would define it."""
    names: dict[str, Any] = {}
    exec(compile(code, sources.add(code), "exec", dont_inherit=True), names)
    return names["f"]


def test_a_typed_function_with_plain_defaults_needs_no_fork() -> None:
    sources = SourceCache()
    function = typed_function('def f(a, b=1, *, c="x"):\n    "Adds."\n    return a', sources)
    section = inspection.describe_static(function, sources)["callable"]
    assert section["signature"] == "(a, b=1, *, c='x')"
    assert section["doc"] == "Adds."
    assert section["source_preview"].startswith("def f(a, b=1")
    assert section["source_truncated"] is False


@pytest.mark.parametrize(
    "code",
    [
        "def f(a: int): ...",
        "def f(a=[]): ...",
        "def f(*, a=()): ...",
        "def f(): ...\nf.note = 1",
    ],
)
def test_a_function_whose_description_may_run_code_needs_a_fork(code: str) -> None:
    sources = SourceCache()
    function = typed_function(code, sources)
    assert not inspection._is_plain_function(function)
    with pytest.raises(NeedsFork):
        inspection.describe_static(function, sources)


def test_a_callable_is_described_by_what_it_has() -> None:
    built_in = described(len)["callable"]
    assert built_in["module"] == "builtins"
    assert built_in["signature"] == "(obj, /)"
    assert built_in["source_preview"] is None
    instance = described(Called())["callable"]
    assert instance["signature"] == "(number: int = 1) -> int"
    assert instance["module"] == __name__
    assert described(Plain)["callable"]["module"] == __name__
    assert described(types.SimpleNamespace)["callable"]["module"] == "types"


def test_a_signature_that_cannot_be_read_is_left_out() -> None:
    class Unsigned:
        __signature__ = 5

        def __call__(self) -> None:
            """Nothing."""

    with pytest.raises(TypeError):
        inspect.signature(Unsigned())
    assert described(Unsigned())["callable"]["signature"] is None


def test_exceptions_and_their_classes_have_a_section_of_their_own() -> None:
    assert described(ValueError)["exception"] == {"exc_type": "ValueError", "message": None, "traceback": None}
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    section = described(error)["exception"]
    assert section["message"] == "outer"
    assert section["causes"] == ["KeyError: 'inner'"]
    group = described(ExceptionGroup("many", [ValueError(str(number)) for number in range(9)]))["exception"]
    assert group["exceptions_total"] == 9
    assert group["exceptions"] == [f"ValueError: {number}" for number in range(limits.CAUSES_MAX)]


def test_an_answer_too_large_is_shortened_where_it_is_longest() -> None:
    sample = {"items": ["x" * 2000] * 40, "shown": 40, "total": 40, "truncated": False}
    answer = inspection.assemble({"type": {}, "kind": "sequence", "sample": sample, "repr": {"text": "short"}})
    assert len(dumps(answer)) <= limits.PAYLOAD_MAX
    assert answer["sample"]["shown"] == len(answer["sample"]["items"]) == 10
    assert answer["sample"]["truncated"] is True
    assert answer["repr"] == {"text": "short"}


def test_an_answer_that_cannot_be_shortened_keeps_type_and_kind_alone() -> None:
    answer = inspection.assemble({"type": {"name": "x"}, "kind": "object", "doc_error": "x" * limits.PAYLOAD_MAX})
    assert answer == {"type": {"name": "x"}, "kind": "object"}
