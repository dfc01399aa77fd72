"""Words out of names and text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.words import fold_word, name_words, plural, text_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list_pull_requests", ["list", "pull", "request"]),
        ("getPullRequestFiles", ["get", "pull", "request", "file"]),
        ("HTMLToPDF", ["html", "to", "pdf"]),
        ("listS3Buckets", ["list", "s3", "bucket"]),
        ("GitHubCreateIssue", ["github", "create", "issue"]),
        ("base64_encode", ["base64", "encode"]),
        ("get-image2", ["get", "image"]),
        ("查询天气", ["查询", "询天", "天气"]),
        ("🚀", []),
        ("", []),
    ],
)
def test_a_name_is_split_where_a_person_would_split_it(name: str, words: list[str]) -> None:
    assert name_words(name) == words


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("queries", "query"),
        ("movies", "movie"),
        ("boxes", "box"),
        ("branches", "branch"),
        ("statuses", "status"),
        ("databases", "database"),
        ("kubernetes", "kubernetes"),
        ("analysis", "analysis"),
        ("repos", "repository"),
        ("organisations", "organization"),
        ("is", "is"),
    ],
)
def test_plurals_short_forms_and_british_spelling_fold_to_one_word(word: str, folded: str) -> None:
    assert fold_word(word) == folded


def test_a_folded_noun_has_a_plural_to_show() -> None:
    assert [plural(word) for word in ("branch", "query", "day", "weather", "index")] == [
        "branches",
        "queries",
        "days",
        "weather",
        "indexes",
    ]


def test_running_text_keeps_brand_names_whole_and_is_cut_at_the_limit() -> None:
    assert text_words("Search GitHub issues") == ["search", "github", "issue"]
    assert len(text_words("word " * 1000, limit=7)) == 7


@given(st.text(max_size=200))
def test_no_text_breaks_the_splitting(text: str) -> None:
    for word in (*name_words(text), *text_words(text)):
        assert word
        assert word == word.lower()
