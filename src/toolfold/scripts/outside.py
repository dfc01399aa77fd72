"""`toolfold.use_tools` outside a script: it only says where it works. Inside, the harness puts the real one there."""

from typing import Any

from toolfold.errors import ScriptError


def use_tools(*needs: str, server: str | None = None) -> list[Any]:
    """Declares which tools a script needs, in plain words, and gives what each became.

    It works in scripts that toolfold runs: there the needs are found before anything runs, and the functions can be
    imported from `servers.<name>` afterwards. Raises `ToolNotFound` where nothing fits.
    """
    raise ScriptError(
        "use_tools works only in scripts that toolfold runs",
        hints=[f"{need!r} was asked for" for need in needs[:3]],
        next_action="run it with `toolfold run script.py` or Gateway.run_script(code); elsewhere use Gateway.call_tool",
    )
