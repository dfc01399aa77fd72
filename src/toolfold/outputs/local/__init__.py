"""Extraction without a language model: the document is searched, and matches are quoted with their place.

In the order of the flow: `request` (what is asked), `source` (the bytes), `formats` (what kind of text), `json_index`,
`segments` and `headings` (how it is divided), `term_search` (where the words occur), `index` (all of it, cached),
`rank`, `render`, `time_filter`, `key_lookup`, and `answer` that joins them. `exact` finds what a request names.
`computed` states what can be computed, with `records`, `facts` and `partial` (what there is), `query_words`,
`token_reader`, `parse_state`, `operation`, `value_words`, `conditions` and `query` (what is asked), `statements` (in
which words), and `suggestion` (how to ask instead).
"""
