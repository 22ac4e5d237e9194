"""What a browser and a program are told at the dashboard's pages while the database does not answer."""

from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

PAGES = ["/login", "/topics", "/nodes", "/topics/public/default/orders", "/manage/"]


@pytest.fixture
def locked_sessions(transactional_db: None) -> Iterator[None]:
    """Nobody can read who is logged in: another one holds the table, and nobody waits for long."""
    given = connection.settings_dict
    with psycopg.connect(
        dbname=given["NAME"],
        user=given["USER"],
        password=given["PASSWORD"],
        host=given["HOST"],
        port=given["PORT"],
    ) as holder:
        holder.execute("LOCK TABLE django_session IN ACCESS EXCLUSIVE MODE")
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        try:
            yield
        finally:
            holder.rollback()
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")


@pytest.mark.parametrize("path", PAGES)
def test_pages_say_when_the_database_is_out_of_reach(locked_sessions: None, path: str) -> None:
    client = Client(raise_request_exception=False)
    client.cookies[settings.SESSION_COOKIE_NAME] = 32 * "a"
    answer = client.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    page = answer.content.decode()
    assert "The database is out of reach" in page
    assert "Traceback" not in page
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    told = client.get(path)
    assert (told.status_code, told.json()["code"], told["Retry-After"]) == (503, "unavailable", "1")


def test_the_way_out_needs_no_page(locked_sessions: None) -> None:
    client = Client(raise_request_exception=False)
    assert client.get("/livez").status_code == 200
    assert client.get(reverse("webui:favicon")).status_code == 302
