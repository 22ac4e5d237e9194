"""`docs/protocol.md` lists every code with the status and the close code that the server gives it."""

import re
from pathlib import Path

from scalable.api.errors import ANSWERS
from scalable.domain.errors import ScalableError

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (\d+) \| .+ \|$", re.MULTILINE)


def test_the_table_of_codes_is_the_server_s() -> None:
    told = {
        code: (int(status), int(close_code)) for code, status, close_code in ROW.findall(PAGE.read_text())
    }
    assert told == {code: tuple(answer) for code, answer in ANSWERS.items()}


def test_every_error_has_a_row() -> None:
    def kinds(kind: type[ScalableError]) -> set[type[ScalableError]]:
        return {kind}.union(*(kinds(each) for each in kind.__subclasses__()))

    codes = {kind.code for kind in kinds(ScalableError) if kind is not ScalableError}
    assert codes <= set(ANSWERS)
