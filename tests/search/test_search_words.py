"""How names and texts are cut into the words that count."""

import pytest

from toolfold.words import MAX_TERMS, _search_words, _stem, query_terms, search_terms, split_identifier


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("getOrderById", ["get", "Order", "By", "Id"]),
        ("list_pull_requests", ["list", "pull", "requests"]),
        ("HTTPServer2", ["HTTP", "Server", "2"]),
        ("k8s-pods", ["k", "8", "s", "pods"]),
        ("Yandex SERP.Get task", ["Yandex", "SERP", "Get", "task"]),
        ("", []),
        ("___", []),
    ],
)
def test_a_name_is_split_where_a_reader_sees_a_seam(name: str, parts: list[str]) -> None:
    assert split_identifier(name) == parts


def test_a_compound_name_is_found_whole_and_by_its_parts() -> None:
    assert _search_words("getOrder") == ["get", "order", "getorder"]


@pytest.mark.parametrize(
    "group",
    [
        "repository repositories",
        "plan plans planning planned planner",
        "create creates created creating creator creation",
        "order orders ordering ordered",
        "search searches searching searched",
        "category categories",
        "translate translation translations translator",
        "categorise categorize",
    ],
)
def test_forms_of_a_word_share_a_stem(group: str) -> None:
    assert len({_stem(word) for word in group.split()}) == 1


@pytest.mark.parametrize(("one", "other"), [("issue", "is"), ("news", "new"), ("bus", "bush"), ("string", "strong")])
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert _stem(one) != _stem(other)


def test_accents_and_apostrophes_do_not_hide_a_word() -> None:
    assert search_terms("Café's menu") == search_terms("cafes menu")


def test_scripts_without_spaces_become_pairs_of_characters() -> None:
    assert search_terms("天气预报") == ["天气", "气预", "预报"]


def test_a_request_counts_each_word_once_and_keeps_its_spelling() -> None:
    assert query_terms("Update rows, update the updated rows") == {_stem("update"): "update", _stem("rows"): "rows"}


def test_16_05_words_that_mean_the_same_find_each_other() -> None:
    assert list(query_terms("Open a ticket, or an issue").values()) == ["Open".lower(), "ticket", "issue"]
    assert {"pull", "merge"} <= set(query_terms("merge requests").values())
    assert set(query_terms("photos").values()) == {"photos", "picture", "image"}
    assert len(query_terms(" ".join(f"word{number}" for number in range(62)) + " photo")) <= MAX_TERMS + 2


def test_a_request_of_stop_words_only_keeps_them() -> None:
    assert list(query_terms("to be or not to be").values()) == ["to", "be", "or", "not"]


def test_a_very_long_request_is_read_to_a_bound() -> None:
    assert len(query_terms(" ".join(f"word{number}" for number in range(10_000)))) == MAX_TERMS
