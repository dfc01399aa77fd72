"""Values that no schema describes: objects whose keys are attributes, too, and texts that keep what they came with."""

from typing import Any


class Record(dict[str, Any]):
    """A JSON object. A key that is a method of `dict`, such as `items`, is reached as `record["items"]`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name == "raw":
            return self
        keys = ", ".join(list(self)[:30])
        raise AttributeError(f"there is no {name!r} in this object; there is: {keys}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Records(list[Any]):
    """A JSON array as a whole result."""

    @property
    def raw(self) -> list[Any]:
        return self


class TextResult(str):
    """A result that is a text; `content` has every block that came."""

    __slots__ = ("content", "raw")
    content: list[Any]
    raw: Any

    @property
    def text(self) -> str:
        return str(self)

    def json(self) -> Any:
        """The text parsed as JSON."""
        import json

        return wrap(json.loads(self))


def wrap(value: Any) -> Any:
    """The value with every object in it made a `Record`."""
    if type(value) is dict:
        return Record((key, wrap(item)) for key, item in value.items())
    if type(value) is list:
        return [wrap(item) for item in value]
    return value


def text_of(content: list[Any]) -> str:
    """The text blocks of a result, one after the other."""
    return "\n".join([block.get("text", "") for block in content if block.get("type") == "text"])
