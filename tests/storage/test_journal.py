"""Events on file: a full disk is told once and clearly, and what cannot be cleared away is in nobody's way."""

from pathlib import Path

import pytest

from toolfold.errors import StoreError
from toolfold.storage.journal import Journal


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_disk_that_is_full_is_told_when_a_line_is_written_and_not_again_at_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.jsonl", kept=3)
    journal._out = Path("/dev/full").open("ab")  # noqa: SIM115 - the journal closes it
    with pytest.raises(StoreError, match="No space left"):
        journal.write(b"{}")
    journal.close()
    journal.write(b'{"a":1}')
    journal.close()
    assert (tmp_path / "run.jsonl").read_bytes() == b'{"a":1}\n'


def test_a_folder_named_like_an_old_one_stays_and_lines_are_written_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    (tmp_path / "b.jsonl").touch()
    journal = Journal(tmp_path / "c.jsonl", kept=1)
    journal.write(b"{}")
    journal.write(b"{}")
    journal.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "c.jsonl"]
