"""The data directory of an instance, where it cannot be one."""

from pathlib import Path

import pytest

from launch.data_directory import DataDirectory
from launch.process import LaunchError


def test_a_folder_that_cannot_be_used_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LaunchError, match=r"file/data cannot be used \(Not a directory\)") as caught:
        DataDirectory(tmp_path / "file" / "data").acquire(print)
    assert "--data-dir" in caught.value.hint
