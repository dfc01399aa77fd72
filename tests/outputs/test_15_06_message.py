"""What stands beside the message about a stored result: its shape, the forms that work, the tool's own arguments."""

import json
from pathlib import Path
from typing import Any

import pytest
from output_scene import Scene, read, run, text_result, texts

ORDERS = [{"id": number, "email": f"u{number}@example.org"} for number in range(1000)]
PAGED = {
    "name": "give",
    "inputSchema": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "pageSize": {}, "limit": {}, "api_token": {}, "start_date": {}},
    },
}


def second_block(tmp_path: Path, result: dict[str, Any]) -> str:
    async def main() -> str:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(result)
            message, hint = texts(outcome)
            assert message.startswith("Tool output is too large (")
            assert message.endswith("about what you are looking for.")
            return hint

    return run(main())


@pytest.mark.requirement("O-03")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            json.dumps({"orders": ORDERS, "total": 1000, "log": "a\nb\n"}),
            [
                "It is a JSON object with the keys orders (array of 1000 objects with id, email), total (number), "
                "log (text of 2 lines).",
                "Answered exactly: a path (`orders[3]`), `lines 10-20`, a `/regex/`. All else: in words.",
            ],
        ),
        (
            json.dumps(ORDERS),
            [
                "It is a JSON array of 1000 objects with id, email.",
                "Answered exactly: a path (`[3]`), `lines 10-20`, a `/regex/`. All else: in words.",
            ],
        ),
        (
            "first line\n\n" + "x" * 300 + "\n" + "more\n" * 5000,
            [
                "It is text that begins:",
                "  first line",
                "  " + "x" * 159 + "…",
                "  more",
                "Answered exactly: `lines 10-20`, a `/regex/`. All else: in words.",
            ],
        ),
        (
            json.dumps({f"key {number}": "x" * 1000 for number in range(20)}),
            [
                f"It is a JSON object with the keys {', '.join(f'key {number} (text)' for number in range(12))} "
                "and 8 more.",
                'Answered exactly: a path (`["key 0"]`), `lines 10-20`, a `/regex/`. All else: in words.',
            ],
        ),
    ],
)
def test_15_06_a_second_block_tells_the_shape_and_the_forms_that_work(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    assert second_block(tmp_path, text_result(text)).split("\n") == lines


def test_15_06_of_a_large_document_only_what_its_beginning_holds_is_told(tmp_path: Path) -> None:
    many = json.dumps(list(range(2_000_000)))
    assert len(many) > 8 << 20
    counted = second_block(tmp_path, text_result(many)).split("\n")[0]
    assert counted.startswith("It is a JSON array of over ")
    assert 0 < int(counted.removeprefix("It is a JSON array of over ").removesuffix(" items.")) < 2_000_000
    wrapped = json.dumps({"next": 2, "orders": "x" * (9 << 20)})
    assert second_block(tmp_path, text_result(wrapped)).startswith("It is a JSON object that begins with next, orders.")
    broken = "{" + "no json" * (2 << 20) + "}"
    assert second_block(tmp_path, text_result(broken)).startswith("It is text that begins:\n  {no json")


def test_15_06_the_tools_own_arguments_that_make_it_return_less_are_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            scene.upstream.set_tools([PAGED])
            await scene.gateway.build()
            hint = texts(await scene.give(text_result("word\n" * 9000)))[1]
            assert hint.split("\n")[-1] == (
                "s.give has arguments that may make it return less: pageSize, limit, start_date."
            )

    run(main())


@pytest.mark.requirement("O-01")
def test_15_06_a_list_that_the_sdk_wrapped_is_kept_as_its_schema_says(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            blocks = [{"type": "text", "text": json.dumps(order, indent=2)} for order in ORDERS]
            for content in (blocks, [{"type": "text", "text": json.dumps(ORDERS)}]):
                outcome = await scene.give({"content": content, "structuredContent": {"result": ORDERS}})
                assert json.loads(scene.kept(outcome)) == {"result": ORDERS}
                assert len(texts(outcome)) == 2
                assert "structuredContent" not in read(outcome)

    run(main())


@pytest.mark.requirement("O-01")
def test_15_10_the_token_limit_decides_where_text_is_dense(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            limits = scene.gateway.settings.limits
            assert limits.response_tokens == limits.context_tokens // 32 == 4000
            dense = "".join(chr(0x4E00 + number * 3) for number in range(4000))
            assert len(dense.encode()) <= limits.tool_response_max_bytes
            assert (await scene.give(text_result(dense))).stored is not None
            assert (await scene.give(text_result("word " * 2400))).stored is None

    run(main())


def test_15_10_a_smaller_window_gives_results_less_room(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, context_tokens=32_000) as scene:
            assert (await scene.give(text_result("word " * 900))).stored is None
            assert (await scene.give(text_result("word " * 1100))).stored is not None

    run(main())


def test_15_06_a_schema_without_such_arguments_names_none() -> None:
    from msgspec import Raw

    from toolfold.outputs.shape import _narrowing_arguments

    for schema in (b"{}", b"true", b'{"properties": 7}', b'{"properties": {"a": 1}}'):
        assert _narrowing_arguments(Raw(schema)) == ()
