"""The ontology: a DAG of categories by capability, made from the tools alone, the same for the same tools.

Below it are the words and the shipped taxonomy; above it the catalogue, which stores what comes out. It ranks nothing
and searches nothing. `build_ontology` is the whole of it; `Overrides` is a person's file, and it wins.

    classifier, facets → views (by capability, by server) → overrides → draft (limits, counts) → nodes
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from toolfold.catalogue.ontology.classifier import classify
from toolfold.catalogue.ontology.draft import Draft, Item, limit_children, make_nodes
from toolfold.catalogue.ontology.facets import all_facets
from toolfold.catalogue.ontology.overrides import Overrides
from toolfold.catalogue.ontology.taxonomy import taxonomy
from toolfold.catalogue.ontology.views import add_capability_view, add_server_view
from toolfold.types import Node, Path, ServerInfo, Tool

__all__ = ["Ontology", "Overrides", "build_ontology"]

_NO_INFOS: Mapping[str, ServerInfo] = MappingProxyType({})


class Ontology(Struct, frozen=True):
    """Categories sorted by path, without the root, and the paths of each tool, the primary one first."""

    nodes: tuple[Node, ...]
    placements: dict[str, tuple[Path, ...]]
    warnings: tuple[str, ...] = ()


def build_ontology(
    tools: Sequence[Tool], *, infos: Mapping[str, ServerInfo] = _NO_INFOS, overrides: Overrides | None = None
) -> Ontology:
    """Places every tool. The order of `tools` does not matter; a hidden tool has no path."""
    ordered = sorted(tools, key=lambda tool: tool.tool_id)
    draft = Draft(ordered)
    places = classify(ordered, infos)
    parts = [taxonomy().parts[place.part].name if place.part is not None else "" for place in places]
    items = [
        Item(tool.tool_id, facets, tool.server, part)
        for tool, facets, part in zip(ordered, all_facets(ordered), parts, strict=True)
    ]
    add_capability_view(draft, items, places)
    add_server_view(draft, items, places)
    if overrides is not None:
        overrides.apply(draft)
    limit_children(draft, items)
    return Ontology(
        nodes=make_nodes(draft),
        placements={tool_id: tuple(paths) for tool_id, paths in draft.paths.items()},
        warnings=tuple(draft.warnings),
    )
