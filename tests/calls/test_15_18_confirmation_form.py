"""What a person reads who is asked to confirm: all of it, or how much is hidden, and nothing that deceives."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.config.sections import Policy
from toolfold.errors import Declined
from toolfold.testing.memory_upstream import MemoryUpstream

SCHEMA = {"type": "object"}


async def shown(home: Path, arguments: dict[str, Any]) -> str:
    """The question that a call leads to."""
    questions: list[str] = []

    async def person(method: str, params: Raw) -> Raw:
        questions.append(msgspec.json.decode(params)["message"])
        return Raw(b'{"action":"decline"}')

    settings = Settings(home=home, policies=(Policy(name="default", confirm=("**",)),))
    async with Gateway(
        settings, upstreams=[MemoryUpstream("bank", [{"name": "pay", "inputSchema": SCHEMA}])]
    ) as gateway:
        await gateway.build()
        with pytest.raises(Declined):
            await gateway.call_tool("bank.pay", arguments, on_input=person, capabilities=Raw(b'{"elicitation":{}}'))
    return questions[0]


async def test_15_18_arguments_stand_there_whole(tmp_path: Path) -> None:
    arguments = {"note": "x" * 900, "rows": list(range(50)), "account": "mallory"}
    question = await shown(tmp_path, arguments)
    assert msgspec.json.decode(question.partition("Arguments: ")[2]) == arguments


async def test_15_18_what_is_hidden_is_counted_and_hides_no_other_argument(tmp_path: Path) -> None:
    question = await shown(tmp_path, {"note": "x" * 9_000, "account": "mallory"})
    assert "(9000 characters)" in question
    assert "mallory" in question
    many = await shown(tmp_path, {f"field{number}": "y" * 100 for number in range(100)})
    assert "more characters are not shown)" in many
    assert "90,0" in await shown(tmp_path, {"note": "z" * 90_000})


async def test_15_18_nothing_invisible_stands_in_a_question(tmp_path: Path) -> None:
    question = await shown(tmp_path, {"to": "ann\u202e\u200b\x7f\x85\u2028bob\n\x1b[2J", "name\u2066": 1})
    head, _, rest = question.partition("\n")
    assert head.isprintable()
    assert rest.isprintable()
    assert "\\u202e" in rest
