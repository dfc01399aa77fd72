"""What is read out of docstrings."""

import pytest

from toolfold.upstream.docstrings import ParsedDocstring, parse_docstring

GOOGLE = """Find orders.

    Only open ones, newest first.

    Args:
        customer (str): Whose orders,
            by name.
        limit (Optional[int]): How many: at most.
        *rest: Not used.

    Returns:
        The orders.

    Raises:
        KeyError: never
    """
NUMPY = """Find orders.

    Only open ones, newest first.

    Parameters
    ----------
    customer : str
        Whose orders,
        by name.
    limit : int, optional
        How many: at most.
    rest
        Not used.

    Returns
    -------
    list
        The orders.

    Notes
    -----
    None.
    """
REST = """Find orders.

    Only open ones, newest first.

    :param customer: Whose orders,
        by name.
    :type customer: str
    :param int limit: How many: at most.
    :param rest: Not used.
    :returns: The orders.
    :raises KeyError: never
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_the_three_forms_say_the_same(text: str) -> None:
    assert parse_docstring(text) == ParsedDocstring(
        "Find orders.\n\nOnly open ones, newest first.",
        {"customer": "Whose orders, by name.", "limit": "How many: at most.", "rest": "Not used."},
        "The orders.",
    )


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_nothing_says_nothing(text: str | None) -> None:
    assert parse_docstring(text) == ParsedDocstring()


def test_prose_that_only_looks_like_a_section_stays_prose() -> None:
    doc = parse_docstring("Parse args: they may be many.\n\nNote: this is prose.")
    assert doc.description == "Parse args: they may be many.\n\nNote: this is prose."
    assert doc.parameters == {}


def test_examples_for_people_are_left_out() -> None:
    assert parse_docstring("Add.\n\n>>> add(1, 2)\n3\n").description == "Add."


def test_several_numpy_parameters_share_one_text() -> None:
    doc = parse_docstring("Move.\n\nParameters\n----------\nx, y : float\n    Where to.\n")
    assert doc.parameters == {"x": "Where to.", "y": "Where to."}
