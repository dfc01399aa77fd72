"""The pages about policies and the trail tell the truth: what they show loads, and what they name exists."""

import re
from pathlib import Path

import pytest

from toolfold import Settings
from toolfold.policy import description_scan

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["policy.md", "audit.md"])
def test_the_examples_load(name: str, tmp_path: Path) -> None:
    for block in re.findall(r"```toml[^\n]*\n(.*?)```", (DOCS / name).read_text("utf-8"), re.DOTALL):
        (tmp_path / "toolfold.toml").write_text(block, "utf-8")
        settings = Settings.load(environ={"HOME": str(tmp_path), "TOOLFOLD_TRUST_PROJECT": "1"}, cwd=tmp_path)
        assert settings.warnings == ()


def test_every_flag_is_on_the_page() -> None:
    text = (DOCS / "policy.md").read_text("utf-8")
    kinds = {"hidden", "blob", *(phrase.kind for phrase in description_scan._phrases())}
    assert not [kind for kind in kinds if f"`flag:{kind}`" not in text]
