"""Builds the documentation as a site into site/, strictly, and checks what came of it.

Zensical checks links between the Markdown pages, anchors included. Here the finished pages are looked at: every link
that stays in the site leads to a file, and to an id in it, and no page loads anything from another machine.

    .venv/bin/python scripts/build_site.py
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
# What a browser fetches by itself; `a` is followed only by a person.
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "srcset"), ("link", "href")}
# Relations of `link` that only name an address.
NAMED_ONLY = {"canonical", "prev", "next", "alternate"}


class Page(HTMLParser):
    """The ids of a page, and where it leads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if "mermaid" in values.get("class", "").split():
            self.loads.append("mermaid, which the theme fetches from elsewhere")
        for name in ("src", "srcset", "href"):
            if name not in values:
                continue
            loads = (tag, name) in LOADS and not NAMED_ONLY & set(values.get("rel", "").split())
            (self.loads if loads else self.links).append(values[name])


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, a line each."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}
    for file, page in pages.items():
        shown = file.relative_to(site)
        for address in page.loads:
            if urlsplit(address).netloc or "elsewhere" in address:
                yield f"{shown} loads {address}"
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or "elsewhere" in address:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{shown} leads to {address}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{shown} leads to {address}, and there is no such place"
    for style in site.rglob("*.css"):
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)} loads {address}"


def main() -> int:
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False)
    if built.returncode != 0:
        return built.returncode
    wrong = list(problems(ROOT / "site"))
    pages = sum(1 for _ in (ROOT / "site").rglob("index.html"))
    sys.stdout.writelines(f"{line}\n" for line in wrong or [f"{pages} pages, every link leads somewhere"])
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
