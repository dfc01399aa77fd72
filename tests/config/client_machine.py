"""A person's home and a project with real files of MCP clients, for the tests of the import."""

import json
from pathlib import Path
from typing import Any

from toolfold.config import Settings
from toolfold.config.clients import ClientConfig, discover


class Machine:
    """A person's home and a project, with real files."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "shop"
        self.home.mkdir()
        self.project.mkdir()
        self.environ = {"HOME": str(self.home), "TOOLFOLD_TRUST_PROJECT": "1"}

    def write(self, path: str, content: Any) -> Path:
        file = (self.home if path.startswith("~/") else self.project) / path.removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")
        return file

    def discover(self, client: str | None = None, **options: Any) -> list[ClientConfig]:
        return discover(client, platform="linux", environ=self.environ, cwd=self.project, **options)

    def load(self, path: Path | None = None) -> Settings:
        return Settings.load(path, environ=self.environ, cwd=self.project)


def servers(**entries: Any) -> dict[str, Any]:
    return {"mcpServers": entries}
