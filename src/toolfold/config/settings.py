"""`Settings`: everything that can be configured, as one frozen value, and the one function that reads it.

Reading looks up no secret and starts nothing. Servers keep their `${…}` references; `secrets.resolve` fills them in
when a server is opened. The reader is imported where a file is read, so that `import toolfold` and `Settings()` in a
program stay light. Above: every stage. Below: the reader.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from toolfold.config.folders import OWNER_FILE, toolfold_home, working_folder
from toolfold.config.sections import (
    Audit,
    Auth,
    CallerKey,
    Defaults,
    Discovery,
    Limits,
    MetadataRule,
    Model,
    Outputs,
    Policy,
    Scripts,
    SignIn,
    Subset,
    Telemetry,
    Trust,
    _Quotas,
    _Search,
    _Serve,
    _Storage,
)
from toolfold.errors import ConfigError, StoreError
from toolfold.types import ServerSpec

if TYPE_CHECKING:
    from toolfold.config.acceptance import ProjectFile

# Where nothing can be written: state that found no folder fails there, and never lands in the person's.
_NOWHERE = Path(os.devnull)
# What takes effect while a gateway is open. All else is built into its parts, and so are these limits.
_LIVE = frozenset((
    "servers", "policies", "subsets", "callers", "auth", "defaults", "discovery", "sources", "warnings", "rules",
    "withheld", "unaccepted", "found",
    "trust", "limits", "quotas",
))  # fmt: skip
_BUILT_IN = ("max_frame_bytes", "max_output_bytes", "parallel_starts")


def _default_home() -> Path:
    return toolfold_home(os.environ)


class Settings(Struct, frozen=True, kw_only=True):
    """What a person configured, checked. Printing it shows no secret."""

    servers: tuple[ServerSpec, ...] = ()
    """With references still in place: see `toolfold.config.resolve`."""
    limits: Limits = Limits()
    defaults: Defaults = Defaults()
    outputs: Outputs = Outputs()
    model: Model = Model()
    discovery: Discovery = Discovery()
    search: _Search = _Search()
    scripts: Scripts = Scripts()
    policies: tuple[Policy, ...] = ()
    subsets: tuple[Subset, ...] = ()
    callers: tuple[CallerKey, ...] = ()
    """Who may come in over a wire, each with a key."""
    auth: Auth = Auth()
    trust: Trust = Trust()
    audit: Audit = Audit()
    telemetry: Telemetry = Telemetry()
    sign_in: SignIn = SignIn()
    storage: _Storage = _Storage()
    serve: _Serve = _Serve()
    quotas: _Quotas = _Quotas()
    rules: tuple[MetadataRule, ...] = ()
    """From `[tools."glob"]`, in the order of the file."""
    ontology_file: Path | None = None
    home: Path = _NOWHERE
    """Where state lives: the catalogue, stored outputs, logs. Settings made from values name none, and a gateway then
    keeps its state in a folder that goes with it; those of a file name the person's."""
    user_home: Path = field(default_factory=_default_home)
    """toolfold's own folder, where the user's `toolfold.toml` lies."""
    project: Path | None = None
    """The folder of a project's configuration; `None` for the user's own."""
    sources: tuple[Path, ...] = ()
    """The files these settings were read from."""
    warnings: tuple[str, ...] = ()
    apart: str = ""
    """The warning that state is not in the folder that was named, since that is another configuration's."""
    withheld: "tuple[ProjectFile, ...]" = ()
    """A client's files in this folder that the person has not accepted: nothing of them is in these settings."""
    unaccepted: "tuple[ProjectFile, ...]" = ()
    """The folder's `toolfold.toml`, where it counts although the person has not accepted it."""
    found: "ProjectFile | None" = None
    """The folder's `toolfold.toml`, where it counts because it lies there: a change of it counts once accepted. Without
    an entry where it was accepted as it was read."""

    @property
    def file_warnings(self) -> tuple[str, ...]:
        """A line for each file of this folder that the person has not accepted."""
        withheld = (f"{left.text}; accept it: {left.command}" for left in self.withheld)
        return (*withheld, *(file.warning for file in self.unaccepted))

    @property
    def scripts_folder(self) -> Path | None:
        """Where scripts are kept by name: in `.toolfold` beside a project's configuration, else in toolfold's own
        folder; `None` for settings that were made from values."""
        if not self.sources:
            return None
        return (self.user_home if self.project is None else self.project / ".toolfold") / "scripts"

    @staticmethod
    def load(
        path: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        require_servers: bool = True,
        ask: bool = False,
    ) -> "Settings":
        """Reads the named file, else the first of ./toolfold.toml, ./.mcp.json, ./mcp.json, ~/.toolfold/toolfold.toml.

        The servers of a ./.mcp.json or ./mcp.json come to those of ~/.toolfold/toolfold.toml; all else counts alone.
        What is found in the folder counts only as the person accepted it: else a client's file is left out, see
        `withheld`, and a ./toolfold.toml raises `NotAccepted` where git tracks it, or others can write it, or whoever
        loads it can `ask`; any other counts with a warning. A file that is named counts as it is.
        With `require_servers=False` a missing file or one without servers is fine, too.
        """
        from toolfold.config.reader import read_settings

        fields = read_settings(
            path,
            home=home,
            environ=os.environ if environ is None else environ,
            cwd=working_folder() if cwd is None else Path(cwd),
            require_servers=require_servers,
            ask=ask,
        )
        return Settings(**fields)

    @contextmanager
    def with_state(self, *, shared: bool) -> "Iterator[Settings]":
        """The same with a folder for state. Unless it may be `shared` with the person, theirs is not taken."""
        if self.home != _NOWHERE and (shared or not self.home.is_relative_to(self.user_home)):
            yield self
            return
        with TemporaryDirectory(prefix="toolfold-", ignore_cleanup_errors=True) as folder:
            yield replace(self, home=Path(folder))

    def adopt(self, other: "Settings") -> tuple["Settings", tuple[str, ...]]:
        """These settings with what of `other` can change while a gateway is open; and what else differs."""
        fixed = {name: getattr(self.limits, name) for name in _BUILT_IN}
        rest = [f"limits.{name}" for name, value in fixed.items() if value != getattr(other.limits, name)]
        other = replace(other, limits=replace(other.limits, **fixed))
        names = [name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)]
        live = {name: getattr(other, name) for name in names if name in _LIVE}
        return replace(self, **live), (*(name for name in names if name not in _LIVE), *rest)

    def make_home(self) -> None:
        """Makes the state folder, and says in it which configuration it is for. Whatever writes there begins with this:
        another configuration would take the folder, and what is in it, for its own."""
        try:
            # For the owner alone: the catalogue may hold what servers tell only this person.
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"the state folder {self.home} cannot be made: {os.strerror(error.errno or 0)}",
                next_action="choose another with --home DIR or TOOLFOLD_HOME",
            ) from error
        owner = self.home / OWNER_FILE
        for file in self.sources[-1:]:  # a project's, where that adds to the person's
            text = os.fsencode(Path(os.path.realpath(file.parent), file.name))
            with suppress(OSError):  # where nothing can be written, nothing is replaced either
                if not owner.exists() or owner.read_bytes() != text:
                    owner.write_bytes(text)

    @property
    def registry_path(self) -> Path:
        """The catalogue as a file for others to read."""
        return self.home / "tool_registry.json"

    @property
    def outputs_shared(self) -> str:
        """Where the outputs lie that every gateway can read: `off`, `store`, or the address of a bucket."""
        if self.outputs.shared != "auto":
            return self.outputs.shared
        return "store" if self.storage.url else "off"

    @property
    def sign_ins_shared(self) -> bool:
        """Whether sign-ins are kept in the store, for all its gateways."""
        return self.sign_in.shared == "store" or (self.sign_in.shared == "auto" and bool(self.storage.url))

    @property
    def restricts(self) -> bool:
        """Whether anything might be kept from whoever runs the gateway."""
        trust = self.trust
        guarded = any(rule.access for rule in self.rules)
        limited = self.policies or self.subsets or self.callers or self.auth.issuer or guarded
        return bool(limited or trust.hold_changed or not trust.accept_new)

    def server(self, name: str) -> ServerSpec:
        """The server of that name, whatever its case."""
        for spec in self.servers:
            if spec.name.casefold() == name.casefold():
                return spec
        from toolfold.config.validation import closest_match

        names = [spec.name for spec in self.servers]
        meant = closest_match(name, names)
        raise ConfigError(
            f"no server is called '{name}'",
            hints=names,
            next_action=f"Did you mean '{meant}'?" if meant else "Run `toolfold servers` to see all.",
        )
