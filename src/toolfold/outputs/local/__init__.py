"""Extraction without a language model: the document is searched, and matches are quoted with their place.

In the order of the flow: `request` (what is asked), `source` (the bytes), `formats` (what kind of text), `json_index`,
`segments` and `headings` (how it is divided), `term_search` (where the words occur), `index` (all of it, cached),
`rank`, `render`, and `answer` that joins them. `exact`, `lookup`, `fields`, `aggregates` and `time_range` answer what
can be answered exactly.
"""
