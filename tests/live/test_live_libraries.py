"""Objects of libraries that people use: arrays, models with secrets, open files, loops. They need no sandbox."""

import asyncio
import json
from typing import Any

import pytest

from toolfold import LiveSession

SETUP = """
import asyncio, sys, numpy, pydantic

objects = numpy.array([[object()] * 50] * 50, dtype=object)
structured = numpy.zeros(3, dtype=[('a', 'i4'), ('b', 'f8')])
masked = numpy.ma.masked_array([1, 2, 3], mask=[0, 1, 0])
scalar = numpy.float64(1.5)

class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr
    friend: 'Login | None' = None
    model_config = {'extra': 'allow'}

    @pydantic.computed_field
    @property
    def broken(self) -> int:
        raise ValueError('computed')

login = Login(user='ann', password='hunter2', note='extra')
hollow = Login.model_construct(user='bob')
login.friend = login

file = open(sys.executable, 'rb')
position = file.tell()
loop = asyncio.new_event_loop()
loop.close()
try:
    1 / 0
except ZeroDivisionError as error:
    trace = error.__traceback__
"""


@pytest.mark.requirement("L-03", "L-04", "L-05")
def test_objects_of_libraries_are_described_without_harm() -> None:
    names = ["objects", "structured", "masked", "scalar", "login", "hollow", "file", "loop", "trace"]

    async def main() -> tuple[dict[str, Any], str]:
        async with LiveSession(trusted=True) as session:
            made = await session.execute(SETUP)
            assert made["ok"], made
            answers = {name: await session.inspect(name) for name in names}
            after = await session.eval_expr("(file.tell() == position, file.closed)")
            await session.execute("file.close()")
            return answers, after["result"]["value_repr"]

    answers, after = asyncio.run(main())
    assert after == "(True, False)"
    for name, answer in answers.items():
        assert answer["ok"], (name, answer)
        text = json.dumps(answer)
        assert len(text) <= 32 * 1024, name
        assert "hunter2" not in text
    found = {name: answer["result"] for name, answer in answers.items()}
    assert found["objects"]["size"] == {"len": 50, "shape": [50, 50]}
    assert found["structured"]["size"] == {"len": 3, "shape": [3]}
    assert found["masked"]["size"]["shape"] == [3]
    assert found["scalar"]["kind"] == "number"
    assert "user" in found["hollow"]["members"]["data"]
    assert [found[name]["kind"] for name in ("file", "loop", "trace")] == ["object"] * 3
