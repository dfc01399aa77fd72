"""The modules that a script imports: `runtime.discovery`, `runtime.exceptions`, `servers.<name>`. In the child only."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import toolfold
from toolfold import errors
from toolfold.scripts.runtime.functions import Binding, BoundTool
from toolfold.scripts.runtime.host_link import HostLink
from toolfold.scripts.values import Need, StartFrame


class _ServerModule(ModuleType):
    """`servers.<name>`: the tools of one server that the script declares."""

    def __init__(self, name: str) -> None:
        super().__init__(f"servers.{name}", "Typed functions for the tools that this script declared.")
        # A path makes it a package to `import`.
        self.__path__: list[str] = []
        self.__dict__["_bound"] = {}

    def bind(self, bound: BoundTool) -> None:
        self.__dict__["_bound"].update(dict.fromkeys(bound.names, bound))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            if name == "__all__":
                return self.__dir__()
            raise AttributeError(name)
        bound: dict[str, BoundTool] = self.__dict__["_bound"]
        if name not in bound:
            # No AttributeError: `from servers.git import x` would replace its message.
            raise ImportError(f"{self.__name__} has no {name!r}; this script declares: {', '.join(self.__dir__())}")
        value = self.__dict__[name] = bound[name].get(name)
        return value

    def __dir__(self) -> list[str]:
        return sorted(self.__dict__["_bound"])


class ScriptModules:
    """What the script's needs became, bound to modules before anything of it runs."""

    def __init__(self, start: StartFrame, link: HostLink, warn: Callable[[str], None]) -> None:
        self.open_output = link.open_output
        self._needs = {(need.query, need.server): need for need in start.needs}
        self._bound = {spec.tool_id: BoundTool(spec, link, warn) for spec in start.tools}
        self._servers = ModuleType("servers", "One module per server whose tools this script declared.")
        self._servers.__path__ = []

    def use_tools(self, *needs: str, server: str | None = None) -> Binding | list[Binding]:
        """The tool for one need, or those for several. Raises `ToolNotFound` where nothing fits."""
        resolved = [self._need(need, server) for need in needs]
        for need in resolved:
            if not need.tool_id:
                raise errors.ToolNotFound(
                    need.problem or f"no tool fits {need.query!r}",
                    query=need.query,
                    hints=need.hints,
                    next_action=need.next_action or "say it in other words",
                )
        bindings = [Binding(need, self._bound[need.tool_id]) for need in resolved]
        return bindings[0] if len(bindings) == 1 else bindings

    def _need(self, query: str, server: str | None) -> Need:
        need = self._needs.get((str(query).strip(), server))
        if need is None:
            raise errors.ScriptError(
                f"{query!r} was not declared before the script started",
                next_action="write it as a literal string in a direct call of use_tools",
            )
        return need

    def _bind(self, bound: BoundTool) -> None:
        name = bound.spec.module
        module = sys.modules.get(f"servers.{name}")
        if not isinstance(module, _ServerModule):
            module = sys.modules[f"servers.{name}"] = _ServerModule(name)
            setattr(self._servers, name, module)
        module.bind(bound)

    def install(self) -> None:
        """Puts the modules where `import` finds them."""
        runtime = ModuleType("runtime", "What a script can ask of the harness.")
        runtime.__path__ = []
        discovery = ModuleType("runtime.discovery", "Declares which tools a script needs.")
        exceptions = ModuleType("runtime.exceptions", "What can go wrong with tools.")
        for name, kind in vars(errors).items():
            if isinstance(kind, type) and issubclass(kind, errors.ToolfoldError):
                setattr(exceptions, name, kind)
        for module in (discovery, runtime, toolfold):
            module.use_tools = self.use_tools  # type: ignore[attr-defined]  # modules take any name
            module.open_output = self.open_output  # type: ignore[attr-defined]  # as above
        runtime.discovery, runtime.exceptions = discovery, exceptions  # type: ignore[attr-defined]  # as above
        self._servers.__getattr__ = self._undeclared_attribute  # type: ignore[method-assign]  # a module's own hook
        sys.modules |= {module.__name__: module for module in (runtime, discovery, exceptions, self._servers)}
        for bound in self._bound.values():
            self._bind(bound)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Says why a server's module is missing, where Python would only say that it is."""
        if name.startswith("servers."):
            raise self._undeclared_error(name.removeprefix("servers."))

    def _undeclared_attribute(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._undeclared_error(name)

    def _undeclared_error(self, name: str) -> ImportError:
        missing = ", ".join(repr(need.query) for need in self._needs.values() if not need.tool_id)
        why = f"nothing fits {missing}" if missing else "no use_tools in this script names a tool of it"
        return ImportError(f"servers.{name} is not there: {why}", name=name)
