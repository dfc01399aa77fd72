"""Scripts: Python source that says in plain words which tools it needs, and gets typed functions for just those.

`declarations` lists the needs before anything runs, `tool_specs` describes the tools as functions and models, `runner`
resolves the needs and starts the script, `execution` runs it in a confined child and answers its calls. `runtime` is
what runs in the child itself. `kept` are scripts with a name, as tools. Above: the gateway. Below: the sandbox.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toolfold.config import Settings

if TYPE_CHECKING:
    from toolfold.scripts.runner import ScriptRunner
    from toolfold.upstream.base import Upstream

__all__ = ["kept_scripts"]


def kept_scripts(settings: Settings, runner: "Callable[[], ScriptRunner]") -> "Iterable[Upstream]":
    """The scripts of a configuration as the server `scripts`, where it has any and no server is called so."""
    folder = settings.scripts_folder
    if folder is not None and folder.is_dir() and all(spec.name != "scripts" for spec in settings.servers):
        from toolfold.scripts.kept import _KeptScripts

        yield _KeptScripts(folder, runner, settings.scripts.wall_s)
