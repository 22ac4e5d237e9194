"""What any stranger can send, and is refused by Django itself, leaves a line in the log and no traceback."""

import asyncio
import logging

import pytest

from scalable.trace import CalmRefusals
from tests.api.unfinished import Begun, all_told, end_of, head
from tests.processes import LiveNode

MANY = "&".join(f"a{number}=1" for number in range(1_500))
MULTIPART = "multipart/form-data; boundary=b"
FORM = "application/x-www-form-urlencoded"
ONE_FILE = '--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\nx\r\n'
FAT_PART = f'--b\r\nContent-Disposition: form-data; name="{"a" * 200_000}"\r\n\r\nx\r\n--b--\r\n'
CASES = {
    "an empty boundary": ("POST", "/login", "multipart/form-data; boundary=", "x"),
    "no boundary": ("POST", "/login", "multipart/form-data", "x"),
    "a boundary of other letters": ("POST", "/login", "multipart/form-data; boundary=\xff", "x"),
    "many fields": ("POST", "/login", FORM, MANY),
    "many files": ("POST", "/login", MULTIPART, ONE_FILE * 150 + "--b--\r\n"),
    "a fat part": ("POST", "/login", MULTIPART, FAT_PART),
    "another charset": ("POST", "/login", f"{FORM}; charset=utf-7", "a=1"),
    "many parameters": ("GET", f"/login?{MANY}", "", ""),
    "many parameters of another page": ("GET", f"/manage/?{MANY}", "", ""),
    "a query too long to come back to": ("GET", f"/?{MANY}", "", ""),
    "another one": ("GET", f"/topics?{MANY}", "", ""),
    "NUL in a query": ("GET", "/manage/scalable/auditevent/?q=%00", "", ""),
}


def knock(node: LiveNode, method: str, path: str, content_type: str, body: str) -> Begun:
    own, length = node.url.removeprefix("http://"), str(len(body))
    named = {"Content_Type": content_type} if content_type else {}
    lines = head(f"{method} {path}", Host=own, Connection="close", Content_Length=length, **named)
    return Begun(lines.decode().encode("latin-1") + f"\r\n{body}".encode())


def test_a_refusal_leaves_lines_without_a_traceback(live_node: LiveNode) -> None:
    for kind, case in CASES.items():
        end = asyncio.run(end_of(live_node, knock(live_node, *case)))
        assert end.statuses == (400,), kind
    told = all_told(live_node).splitlines()
    assert not [line for line in told if "Traceback" in line or "ERROR" in line]
    of_django = [line for line in told if "WARNING django." in line]
    assert len(of_django) == len([line for line in told if " 400 in " in line]) == len(CASES)


@pytest.mark.parametrize(
    ("status", "level"),
    [(400, "WARNING"), (499, "WARNING"), (500, "ERROR"), (501, "WARNING"), (503, "ERROR")],
)
def test_an_answer_that_is_a_fault_of_ours_keeps_its_traceback(status: int, level: str) -> None:
    trouble = ValueError("trouble")
    record = logging.LogRecord("django.request", logging.ERROR, "", 0, "", (), (ValueError, trouble, None))
    record.status_code = status
    assert CalmRefusals().filter(record)
    assert (record.levelname, record.exc_info is not None) == (level, level == "ERROR")
