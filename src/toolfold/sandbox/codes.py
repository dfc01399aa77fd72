"""The exit codes by which a child says how its function ended. Standard library only: both sides know them.

A script may leave with any of them by itself and gains nothing: the host believes them only as far as "it ended".
"""

FAILED = 1
FINISHED = 230
OUT_OF_MEMORY = 231
UNCONFINED = 232
