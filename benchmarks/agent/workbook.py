"""Reads the cells of a workbook with nothing but the standard library, so that no server has a say in the check."""

import re
import zipfile
from pathlib import Path
from typing import Any

_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def cells(workbook: Path, sheet: str) -> dict[str, Any]:
    """Name → value of all cells of a sheet that hold one; a formula is a text that begins with `=`."""
    if not workbook.is_file():
        return {}
    with zipfile.ZipFile(workbook) as parts:
        target = _sheets(parts).get(sheet)
        if target is None:
            return {}
        texts = [_text(one) for one in _tree(parts, "xl/sharedStrings.xml")]
        found = ((cell.get("r", ""), _value(cell, texts)) for cell in _all(_tree(parts, target), "c"))
        return {name: value for name, value in found if value is not None}


def sheet_names(workbook: Path) -> list[str]:
    """The sheets in their order; none where there is no workbook."""
    if not workbook.is_file():
        return []
    with zipfile.ZipFile(workbook) as parts:
        return list(_sheets(parts))


def _sheets(parts: zipfile.ZipFile) -> dict[str, str]:
    links = {one.get("Id"): str(one.get("Target")) for one in _tree(parts, "xl/_rels/workbook.xml.rels")}
    return {
        str(one.get("name")): re.sub("^(?!xl/)", "xl/", links[one.get(_RELATION)].lstrip("/"))
        for one in _all(_tree(parts, "xl/workbook.xml"), "sheet")
    }


def _value(cell: Any, texts: list[str]) -> Any:
    by_tag = {part.tag.rpartition("}")[2]: part for part in cell}
    if "f" in by_tag:
        return f"={by_tag['f'].text}"
    kind = cell.get("t")
    if kind == "inlineStr":
        return _text(cell)
    held = by_tag["v"].text if "v" in by_tag else None
    if held is None:
        return None
    if kind == "s":
        return texts[int(held)]
    if kind in {"str", "b", "e"}:
        return held
    return int(held) if re.fullmatch(r"-?\d+", held) else float(held)


def _text(element: Any) -> str:
    return "".join(part.text or "" for part in _all(element, "t"))


def _all(element: Any, tag: str) -> list[Any]:
    return [part for part in element.iter() if part.tag.rpartition("}")[2] == tag]


def _tree(parts: zipfile.ZipFile, name: str) -> Any:
    from xml.etree import ElementTree as Xml

    return Xml.fromstring(parts.read(name)) if name in parts.namelist() else Xml.Element("none")  # noqa: S314 - the task made it
