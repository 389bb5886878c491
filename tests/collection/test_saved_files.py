"""Files that the control node saves: whole or not at all, also where two runs save the same one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.lium.cluster.plugins.plugin_utils._file import replacing, save


def test_two_runs_in_one_folder_write_a_whole_file_each(tmp_path: Path) -> None:
    path = tmp_path / "lium-report.json"
    with replacing(str(path)) as one:
        one.write("one, first half; ")
        with replacing(str(path)) as two:
            two.write("two")
        assert path.read_text() == "two"
        one.write("second half")
    assert path.read_text() == "one, first half; second half"
    assert os.listdir(tmp_path) == [path.name]


def test_a_failed_write_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "lium-report.json"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replacing(str(path)) as stream:  # noqa: PT012
        stream.write("half")
        raise OSError(28, "disk full")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", [path.name])


def test_a_saved_file_has_the_mode_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with replacing(str(tmp_path / "saved")) as stream:
        stream.write("text")
    assert (tmp_path / "saved").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_check_mode_saves_nothing_and_a_failure_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "none" / "lium-report.json"
    assert save(str(path), lambda stream: stream.write("text"), what="the report", check_mode=True) == str(path)
    with pytest.raises(
        AnsibleActionFail, match=f"the report could not be written to {path}: No such file or directory"
    ):
        save(str(path), lambda stream: stream.write("text"), what="the report", check_mode=False)
