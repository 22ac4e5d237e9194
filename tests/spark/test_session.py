"""The session of Spark: where its files lie."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.session import _places

pytestmark = [pytest.mark.spark]


def test_what_the_jvm_puts_aside_lies_below_the_directory_of_its_session(session: SparkSession) -> None:
    local = Path(session.sparkContext.getConf().get("spark.local.dir") or "")
    temporary = session.sparkContext._jvm.System.getProperty("java.io.tmpdir")  # type: ignore[union-attr]
    assert Path(temporary) == local.parent / "temporary" / str(session.sparkContext.appName)


def test_options_for_java_hold_paths_of_any_name(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted\\" one'
    told = _places(odd, "name")["spark.driver.extraJavaOptions"]
    home = str(odd / "derby").replace("\\", "\\\\").replace('"', '\\"')
    assert f'-Dderby.system.home="{home}"' in told


def test_what_a_former_session_of_the_name_left_is_removed_and_what_others_have_is_not(
    tmp_path: Path,
) -> None:
    for name in ("one", "another"):
        _places(tmp_path, name)
        (tmp_path / "temporary" / name / "lib.so").touch()
    assert f'-Djava.io.tmpdir="{tmp_path}/temporary/one"' in str(_places(tmp_path, "one").values())
    assert [each.parent.name for each in (tmp_path / "temporary").rglob("*.so")] == ["another"]
