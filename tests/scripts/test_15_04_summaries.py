"""What a script returns arrives as values, whatever it is made of, and a large summary is stored, never dropped."""

import json
from pathlib import Path
from typing import Any

import pytest
from script_kit import run_scripts, with_tools

from toolfold import Gateway
from toolfold.config.sections import Scripts
from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult

VALUES: list[tuple[str, Any]] = [
    ("import numpy as np\n{'n': np.int64(5), 'f': np.float32(1.5), 'b': np.bool_(True), 'd': np.float64(2.5)}",
     {"n": 5, "f": 1.5, "b": True, "d": 2.5}),
    ("import numpy as np\nnp.arange(4).reshape(2, 2)", [[0, 1], [2, 3]]),
    ("import numpy as np\n{'at': np.datetime64('2024-01-02')}", {"at": "2024-01-02"}),
    ("{'text': 'ü'.encode(), 'raw': b'\\xff\\x00', 'more': bytearray(b'x')}",
     {"text": "ü", "raw": {"base64": "/wA="}, "more": "x"}),
    ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: object = None\nP(1, P(2))",
     {"x": 1, "y": {"x": 2, "y": None}}),
    ("from enum import Enum, IntEnum\nclass A(Enum):\n    x = 'a'\nclass B(IntEnum):\n    y = 2\n[A.x, B.y]", ["a", 2]),
    ("from collections import deque, Counter\n[deque([1]), range(2), Counter('aa'), {'k': 1}.keys()]",
     [[1], [0, 1], {"a": 2}, ["k"]]),
    ("from decimal import Decimal\n{'price': Decimal('1.50'), 'big': 2 ** 80}", {"price": "1.50", "big": str(2**80)}),
]  # fmt: skip


@pytest.mark.requirement("U-08")
def test_15_04_values_of_a_summary_arrive_as_values(tmp_path: Path) -> None:
    results = run_scripts(tmp_path, [code for code, _ in VALUES], upstreams=[])
    assert [result.answer for result in results] == [value for _, value in VALUES], [r.warnings for r in results]
    assert [result.warnings for result in results] == [()] * len(VALUES)


@pytest.mark.requirement("U-08", "O-16")
@pytest.mark.parametrize("count", [5_000, 900_000])
def test_15_04_a_summary_over_the_limit_is_stored_under_a_handle(tmp_path: Path, count: int) -> None:
    async def work(gateway: Gateway) -> tuple[ScriptResult, Any]:
        result = await gateway.run_script(f"print('[1]')\n['\\x01ü{{}}'.format(n) for n in range({count})]")
        assert result.stored is not None, report.as_text(result)
        return result, json.loads((await gateway.outputs.file(result.stored.handle)).read_bytes())

    result, found = with_tools(tmp_path, work, scripts=Scripts(wall_s=20.0, output_bytes=10_000, ready=1))
    assert found == [f"\x01ü{number}" for number in range(count)]
    assert (result.answer, result.warnings) == (None, ())
    assert result.stored is not None
    assert f'tool_output(handle = "{result.stored.handle}"' in report.as_text(result)
    assert report.as_dict(result)["answer_stored"]["handle"] == result.stored.handle
    assert result.stored.handle in "\n".join(report.summary_lines(result))


def test_15_04_a_summary_beyond_all_bounds_is_said_to_be(tmp_path: Path) -> None:
    async def work(gateway: Gateway) -> ScriptResult:
        return await gateway.run_script("'x' * 2_000_000")

    result = with_tools(tmp_path, work, scripts=Scripts(wall_s=20.0, output_bytes=10_000, kept_bytes=1 << 20, ready=1))
    assert result.stored is None
    assert result.warnings == ("the summary is over 1,048,576 bytes and was dropped: return less",)
