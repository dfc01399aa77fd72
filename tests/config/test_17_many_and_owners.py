"""What is written for others and for many: backups keep their owner, many servers leave a file in one pass."""

import os
from pathlib import Path

import pytest

from toolfold.config.files import create_backup
from toolfold.config.toml import parse_toml, remove_tables


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_backup_belongs_to_whom_the_file_belongs(tmp_path: Path) -> None:
    file, copy = tmp_path / "toolfold.toml", tmp_path / "copy"
    file.write_text("[servers.a]\ncommand = 'x'\n")
    os.chown(file, 12345, 12346)
    create_backup(file, copy)
    assert (copy.stat().st_uid, copy.stat().st_gid) == (12345, 12346)


def test_many_servers_are_taken_out_in_one_pass(tmp_path: Path) -> None:
    parts = [f"# about {n}\n[servers.s{n}]\ncommand = 'x'\n\n[servers.s{n}.env]\nA = '{n}'\n" for n in range(300)]
    text = "[limits]\nidle_s = 9\n" + "".join(parts)
    left, removed, _ = remove_tables(text, *(("servers", f"s{n}") for n in range(299)))
    servers = {"s299": {"command": "x", "env": {"A": "299"}}}
    assert parse_toml(tmp_path, left) == {"limits": {"idle_s": 9}, "servers": servers}
    assert len(parse_toml(tmp_path, removed)["servers"]) == 299
    assert left.count("# about") == 300  # what stands between servers stays
