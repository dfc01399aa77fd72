"""`inspect` and `list_globals` through the public session: shapes, kinds, sections, limits."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toolfold import LiveSession

Answers = dict[str, dict[str, Any]]


def looked_at(setup: str, *expressions: str) -> Answers:
    """The envelopes of `inspect` for each expression, in a fresh session."""

    async def main() -> Answers:
        async with LiveSession() as session:
            if setup:
                answer = await session.execute(setup)
                assert answer["ok"], answer
            return {expr: await session.inspect(expr) for expr in expressions}

    return asyncio.run(main())


def result_of(setup: str, expr: str = "it") -> dict[str, Any]:
    answer = looked_at(setup, expr)[expr]
    assert answer["ok"], answer
    found: dict[str, Any] = answer["result"]
    return found


LIMITS = {
    "repr_max_chars": 4096,
    "doc_max_chars": 4096,
    "sample_max_items": 16,
    "member_max_per_group": 24,
    "source_preview_max_chars": 1200,
}


@pytest.mark.requirement("L-02", "L-03")
def test_a_number_is_described_to_the_letter() -> None:
    answer = looked_at("", "42")["42"]
    assert answer == {
        "ok": True,
        "result": {
            "type": {"name": "int", "module": "builtins", "qualified": "builtins.int"},
            "kind": "number",
            "repr": {"text": "42", "truncated": False, "original_len": 2},
            "members": answer["result"]["members"],
            "limits": LIMITS,
        },
    }
    members = answer["result"]["members"]
    assert members["data"] == ["denominator", "imag", "numerator", "real"]
    assert "to_bytes" in members["callables"]
    assert members["callables"] == sorted(members["callables"])
    assert set(members) == {"data", "callables", "dunder_count", "shown_per_group", "truncated"}


@pytest.mark.requirement("L-03", "L-05")
def test_a_list_has_its_size_and_a_sample_that_says_how_much_is_missing() -> None:
    found = result_of("it = list(range(100))")
    assert found["kind"] == "sequence"
    assert found["size"] == {"len": 100}
    assert found["sample"] == {
        "items": [str(number) for number in range(16)],
        "shown": 16,
        "total": 100,
        "truncated": True,
    }


@pytest.mark.requirement("L-03")
def test_long_texts_are_cut_and_say_how_long_they_were() -> None:
    answers = looked_at("def documented():\n    pass\ndocumented.__doc__ = 'd' * 5000", "'x' * 10000", "documented")
    written = answers["'x' * 10000"]["result"]["repr"]
    assert (len(written["text"]), written["truncated"], written["original_len"]) == (4096, True, 10002)
    doc = answers["documented"]["result"]["doc"]
    assert (len(doc["text"]), doc["truncated"], doc["original_len"]) == (4096, True, 5000)


@pytest.mark.requirement("L-07")
def test_a_function_typed_at_the_prompt_has_signature_module_and_source() -> None:
    found = result_of("def next(x, *, step=1):\n    'One more.'\n    x + step", "next")
    assert found["kind"] == "callable"
    assert found["callable"] == {
        "module": "__main__",
        "signature": "(x, *, step=1)",
        "doc": "One more.",
        "source_preview": "def next(x, *, step=1):\n    'One more.'\n    x + step",
        "source_truncated": False,
    }


@pytest.mark.requirement("L-07")
def test_classes_methods_and_long_sources_are_previewed() -> None:
    body = "\n".join(f"    def method_{number}(self): return {number}" for number in range(60))
    answers = looked_at(f"import json\nclass Many:\n{body}\nmany = Many()", "Many", "many.method_1", "json.dumps")
    many = answers["Many"]["result"]["callable"]
    assert many["source_preview"].startswith("class Many:\n    def method_0(self): return 0")
    assert (len(many["source_preview"]), many["source_truncated"]) == (1200, True)
    assert "return 1" in answers["many.method_1"]["result"]["callable"]["source_preview"]
    assert answers["json.dumps"]["result"]["callable"]["source_preview"].startswith("def dumps(obj, *, skipkeys=False")


@pytest.mark.requirement("L-07")
def test_a_built_in_function_has_no_source_and_that_is_fine() -> None:
    found = result_of("", "len")
    assert found["callable"]["source_preview"] is None
    assert found["callable"]["signature"] == "(obj, /)"
    assert "number of items" in found["doc"]["text"]


@pytest.mark.requirement("L-03")
def test_none_is_its_own_kind() -> None:
    found = result_of("", "None")
    assert found["kind"] == "none"
    assert found["repr"] == {"text": "None", "truncated": False, "original_len": 4}


@pytest.mark.requirement("L-06")
def test_an_exception_has_type_message_and_a_short_traceback() -> None:
    setup = (
        "def fails():\n    raise ValueError('no such row')\n"
        "try:\n    fails()\nexcept ValueError as error:\n    it = error"
    )
    found = result_of(setup)
    assert found["kind"] == "exception"
    assert found["exception"]["exc_type"] == "ValueError"
    assert found["exception"]["message"] == "no such row"
    assert found["exception"]["traceback"].splitlines()[-2:] == [
        '  File "<live-1>", line 2, in fails',
        "    raise ValueError('no such row')",
    ]


@pytest.mark.requirement("L-06")
def test_the_last_error_of_the_session_can_be_inspected() -> None:
    async def main() -> dict[str, Any]:
        async with LiveSession() as session:
            assert not (await session.eval_expr("{}['missing']"))["ok"]
            return await session.inspect("_exc")

    found = asyncio.run(main())["result"]
    assert found["exception"]["exc_type"] == "KeyError"


@pytest.mark.requirement("L-05")
def test_a_container_inside_itself_is_harmless() -> None:
    found = result_of("it = [1]\nit.append(it)")
    assert found["repr"]["text"] == "[1, [...]]"
    assert found["sample"]["items"] == ["1", "[1, [...]]"]


@pytest.mark.requirement("L-04")
def test_a_broken_repr_is_told_beside_a_plain_form() -> None:
    found = result_of("class Odd:\n    def __repr__(self): raise ValueError('broken')\nit = Odd()")
    assert found["repr_error"] == "ValueError: broken"
    assert found["repr"]["text"].startswith("<__main__.Odd object at 0x")


BROKEN: Mapping[str, tuple[str, str]] = {
    "dir": ("def __dir__(self): raise ValueError('broken')", "dir_error"),
    "doc": ("__doc__ = property(lambda self: 1 / 0)", "doc_error"),
    "len": ("def __len__(self): raise ValueError('broken')", "len_error"),
}


@pytest.mark.requirement("L-04")
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_section_says_so_and_the_others_stand(name: str) -> None:
    body, error = BROKEN[name]
    found = result_of(f"class Odd:\n    {body}\nit = Odd()")
    assert "Error" in found[error]
    assert found["kind"] == "object"
    assert "repr" in found


@pytest.mark.requirement("L-04")
def test_lying_attributes_and_properties_are_never_asked() -> None:
    setup = (
        "asked = []\nclass Odd:\n    def __getattr__(self, name): asked.append(name)\n"
        "    @property\n    def __class__(self): asked.append('class'); return int\n"
        "    @property\n    def costly(self): asked.append('costly')\nit = Odd()"
    )
    answers = looked_at(setup, "it", "asked")
    assert answers["it"]["result"]["type"]["qualified"] == "__main__.Odd"
    assert answers["it"]["result"]["members"]["data"] == ["costly"]
    assert answers["asked"]["result"]["size"] == {"len": 0}


KINDS: Mapping[str, Sequence[str]] = {
    "none": ("None",),
    "bool": ("True",),
    "number": ("1", "1.5", "2j", "__import__('decimal').Decimal(1)", "__import__('fractions').Fraction(1, 2)"),
    "string": ("'a'", "type('S', (str,), {})('a')"),
    "bytes": ("b'a'", "bytearray(2)", "memoryview(b'a')"),
    "mapping": ("{}", "__import__('os').environ", "__import__('collections').ChainMap()"),
    "sequence": ("[]", "()", "range(3)", "__import__('collections').deque()", "__import__('array').array('i')"),
    "set": ("set()", "frozenset()", "{}.keys()"),
    "iterator": ("iter([])", "map(str, [])", "zip()"),
    "generator": ("(n for n in [])",),
    "coroutine": ("coroutine",),
    "async_generator": ("asynchronous",),
    "callable": ("len", "lambda: 0", "[].append", "__import__('functools').partial(int)"),
    "class": ("int", "ValueError", "type"),
    "module": ("__import__('json')",),
    "exception": ("ValueError(1)", "ExceptionGroup('g', [ValueError()])"),
    "object": ("object()", "__import__('types').SimpleNamespace()", "__import__('io').StringIO()"),
    "other": ("...", "NotImplemented"),
}


@pytest.mark.requirement("L-03", "L-05")
def test_all_kinds_are_told_apart() -> None:
    setup = "async def made(): pass\ncoroutine = made()\nasync def yields(): yield 1\nasynchronous = yields()"
    expressions = [expr for group in KINDS.values() for expr in group]
    answers = looked_at(setup, *expressions)
    found = {expr: answers[expr]["result"]["kind"] for expr in expressions}
    assert found == {expr: kind for kind, group in KINDS.items() for expr in group}


@pytest.mark.requirement("L-05")
def test_looking_never_advances_anything() -> None:
    async def main() -> list[str]:
        async with LiveSession() as session:
            await session.execute(
                "it = iter([1, 2, 3])\ng = (n for n in 'abc')\nf = __import__('io').StringIO('x\\ny')"
            )
            for _ in range(3):
                for name in ("it", "g", "f", "[it, g, f]", "{'f': f}"):
                    assert (await session.inspect(name))["ok"]
            return [(await session.eval_expr(f"next({name})"))["result"]["value_repr"] for name in ("it", "g", "f")]

    assert asyncio.run(main()) == ["1", "'a'", "'x\\n'"]


@pytest.mark.requirement("L-03")
def test_the_same_object_is_described_the_same_each_time() -> None:
    setup = "it = {'pear', 'apple', 'fig'}\nnumbers = {3, 1, 2}"
    answers = [looked_at(setup, "it", "numbers") for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["it"]["result"]["sample"]["items"] == ["'apple'", "'fig'", "'pear'"]
    assert answers[0]["numbers"]["result"]["repr"]["text"] == "{1, 2, 3}"


@pytest.mark.requirement("L-03")
def test_arrays_tell_their_shape() -> None:
    async def main() -> dict[str, Any]:
        async with LiveSession(trusted=True) as session:  # the library lies where a sandbox need not let it be read
            await session.execute(
                "import numpy\nit = numpy.zeros((3, 2))\nrows = numpy.array([object()], dtype=object)"
            )
            found = await session.inspect("it")
            assert (await session.inspect("rows"))["result"]["size"] == {"len": 1, "shape": [1]}
            return found

    assert asyncio.run(main())["result"]["size"] == {"len": 3, "shape": [3, 2]}


@pytest.mark.requirement("L-02")
def test_globals_are_listed_by_name_without_modules_and_helpers() -> None:
    async def main() -> list[dict[str, Any]]:
        async with LiveSession() as session:
            first = await session.list_globals()
            await session.execute(
                "import json\nx = 1\n_private = []\n_toolfold_x = 1\n__dunder__ = 2\nglobals()[7] = 8"
            )
            return [first, await session.list_globals()]

    empty, filled = asyncio.run(main())
    assert empty == {"ok": True, "result": {"globals": []}}
    assert filled == {
        "ok": True,
        "result": {"globals": [{"name": "_private", "type_name": "list"}, {"name": "x", "type_name": "int"}]},
    }


@pytest.mark.requirement("L-02")
def test_an_expression_that_fails_is_a_python_exception() -> None:
    answers = looked_at("", "missing", "1 +", "await x")
    assert answers["missing"]["error"]["code"] == "python_exception"
    assert answers["missing"]["error"]["message"] == "NameError: name 'missing' is not defined"
    assert answers["1 +"]["error"]["exc_type"] == "SyntaxError"
    assert answers["await x"]["error"]["exc_type"] == "SyntaxError"
