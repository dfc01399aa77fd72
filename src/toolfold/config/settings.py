"""`Settings`: everything that can be configured, as one frozen value, and the one function that reads it.

Reading looks up no secret and starts nothing. Servers keep their `${…}` references; `secrets.resolve` fills them in
when a server is opened. Above: every stage. Below: the reader and the places.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from toolfold.config.sections import (
    Audit,
    CallerKey,
    Discovery,
    Limits,
    MetadataRule,
    Model,
    Outputs,
    Policy,
    Scripts,
    Telemetry,
    Trust,
)
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec


def _default_home() -> Path:
    from toolfold.config.search_path import toolfold_home

    return toolfold_home(os.environ)


class Settings(Struct, frozen=True, kw_only=True):
    """What a person configured, checked. Printing it shows no secret."""

    servers: tuple[ServerSpec, ...] = ()
    """With references still in place: see `toolfold.config.resolve`."""
    limits: Limits = Limits()
    outputs: Outputs = Outputs()
    model: Model = Model()
    discovery: Discovery = Discovery()
    scripts: Scripts = Scripts()
    policies: tuple[Policy, ...] = ()
    callers: tuple[CallerKey, ...] = ()
    """Who may come in over a wire, each with a key."""
    trust: Trust = Trust()
    audit: Audit = Audit()
    telemetry: Telemetry = Telemetry()
    rules: tuple[MetadataRule, ...] = ()
    """From `[tools."glob"]`, in the order of the file."""
    ontology_file: Path | None = None
    home: Path = field(default_factory=_default_home)
    """Where state lives: the catalogue, stored outputs, logs."""
    user_home: Path = field(default_factory=_default_home)
    """toolfold's own folder, where the user's `toolfold.toml` lies."""
    project: Path | None = None
    """The folder of a project's configuration; `None` for the user's own."""
    sources: tuple[Path, ...] = ()
    """The files these settings were read from."""
    warnings: tuple[str, ...] = ()

    @staticmethod
    def load(
        path: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        require_servers: bool = True,
    ) -> "Settings":
        """Reads the named file, else the first of ./toolfold.toml, ./.mcp.json, ./mcp.json, ~/.toolfold/toolfold.toml.

        With `require_servers=False` a missing file or one without servers is fine, too.
        """
        from toolfold.config import search_path as places

        environ = os.environ if environ is None else environ
        folder = places.working_folder() if cwd is None else Path(cwd)
        user_home = folder / places.toolfold_home(environ)
        found = places.find_config(path, folder, user_home, environ)
        state = places.state_folder(found, home, folder, environ)
        if found is None and require_servers:
            raise _nothing_found(places.candidate_files(folder, user_home))
        loaded = _load(found, folder, user_home, state, environ)
        if require_servers and not loaded.servers:
            raise _no_servers(loaded.sources[0])
        return loaded

    @property
    def restricts(self) -> bool:
        """Whether anything might be kept from whoever runs the gateway."""
        trust = self.trust
        guarded = any(rule.access for rule in self.rules)
        return bool(self.policies or self.callers or guarded or trust.hold_changed or not trust.accept_new)

    def server(self, name: str) -> ServerSpec:
        """The server of that name, whatever its case."""
        for spec in self.servers:
            if spec.name.casefold() == name.casefold():
                return spec
        from toolfold.config.validation import closest_match

        known = [spec.name for spec in self.servers]
        meant = closest_match(name, known)
        raise ConfigError(
            f"no server is called '{name}'",
            hints=known,
            next_action=f"Did you mean '{meant}'?" if meant else "Run `toolfold servers` to see all.",
        )


def _load(found: Any, cwd: Path, user_home: Path, state: Path, environ: Mapping[str, str]) -> Settings:
    from toolfold.config import search_path as places
    from toolfold.config.reader import ParsedConfig, read_config, read_overrides
    from toolfold.config.sections import SECTIONS
    from toolfold.config.servers import ServerContext
    from toolfold.config.validation import Checker

    report = Checker("environment")
    overrides = read_overrides(environ, report)
    report.raise_errors()
    person = places.home_folder(environ)
    parsed = ParsedConfig()
    folder = cwd
    if found is not None:
        # A project's servers run in the project; the user's own run where toolfold was started.
        project = found.project
        around = ServerContext(folder=project or cwd, user=person, default_cwd=str(project) if project else None)
        parsed = read_config(found.path, around, overrides)
        folder = found.path.parent
    sections = {name: {**parsed.sections.get(name, {}), **overrides.get(name, {})} for name in SECTIONS}
    _default_directory(sections["outputs"], folder, person, environ)
    return Settings(
        servers=parsed.servers,
        limits=Limits(**sections["limits"]),
        outputs=Outputs(**sections["outputs"]),
        model=Model(**sections["model"]),
        discovery=Discovery(**sections["discovery"]),
        scripts=Scripts(**sections["scripts"]),
        policies=parsed.policies,
        callers=parsed.callers,
        trust=Trust(**sections["trust"]),
        audit=Audit(**sections["audit"]),
        telemetry=Telemetry(**sections["telemetry"]),
        rules=parsed.rules,
        ontology_file=_ontology(sections["ontology"], folder, person),
        home=state,
        user_home=user_home,
        project=found.project if found else None,
        sources=(found.path,) if found else (),
        warnings=tuple(str(problem) for problem in parsed.warnings),
    )


def _default_directory(outputs: dict[str, Any], folder: Path, person: Path, environ: Mapping[str, str]) -> None:
    if "directory" in outputs:
        outputs["directory"] = str(_absolute(outputs["directory"], folder, person))
    elif environ.get("TMPDIR"):
        outputs["directory"] = environ["TMPDIR"]


def _ontology(section: dict[str, Any], folder: Path, person: Path) -> Path | None:
    if "file" not in section:
        return None
    path = _absolute(section["file"], folder, person)
    if not path.is_file():
        raise ConfigError(
            f"ontology.file: there is no file {path}",
            next_action="Write the file, or remove the key: the tree is then built from the tools alone.",
        )
    return path


def _absolute(text: str, folder: Path, person: Path) -> Path:
    return person / text[2:] if text.startswith("~/") else folder / text


def _nothing_found(looked: list[Path]) -> ConfigError:
    return ConfigError(
        "there is no configuration",
        hints=[f"looked for {path}" for path in looked],
        next_action="Run `toolfold import` to take over an MCP client's servers, or `toolfold demo` to look around.",
    )


def _no_servers(path: Path) -> ConfigError:
    from toolfold.config.reader import ADD_SERVER

    return ConfigError(f"{path} names no servers", next_action=ADD_SERVER)
