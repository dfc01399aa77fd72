"""The bounds of every answer. Those in `LIMITS` are part of each `inspect` answer; models rely on them."""

REPR_MAX = 4096
DOC_MAX = 4096
SAMPLE_MAX = 16
MEMBERS_MAX = 24
SOURCE_MAX = 1200

LIMITS = {
    "repr_max_chars": REPR_MAX,
    "doc_max_chars": DOC_MAX,
    "sample_max_items": SAMPLE_MAX,
    "member_max_per_group": MEMBERS_MAX,
    "source_preview_max_chars": SOURCE_MAX,
}

ITEM_MAX = 160  # characters of a sample item
MEMBER_NAME_MAX = 80
NAMES_MAX = 10_000  # names of one object that are read: a class can be generated with millions
SIGNATURE_MAX = 1000
DOC_HEAD = 400  # characters of the doc in the `callable` section; the `doc` section has the rest
MESSAGE_MAX = 1000
TRACEBACK_MAX = 2000
FRAMES_MAX = 8
CAUSES_MAX = 5
OUTPUT_MAX = 16_384  # characters of standard output, and of standard error, in the answer to an evaluation
PAYLOAD_MAX = 32_000  # bytes of a whole answer in its widest encoding; 32 KB are promised
EXPRESSION_MAX = 65_536
CODE_MAX = 1024 * 1024
