"""The OpenAPI description of the REST doors, and its pages."""

from functools import cache
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.templatetags.static import static
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.views.base import DoorView
from scalable.domain.access import Right
from scalable.domain.errors import Unauthenticated

# What draws the pages sets style attributes and has its pictures in addresses.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
ASSETS = "drf_spectacular_sidecar/swagger-ui-dist"
PAGE = """<!doctype html>
<html lang="en" data-theme="auto">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Scalable Topics: REST</title>
<link rel="stylesheet" href="{css}"><link rel="stylesheet" href="{bar}"><link rel="icon" href="{icon}">
<script src="{theme}"></script><script src="{dark}"></script></head>
<body><header class="bar">
<a href="{home}"><img src="{icon}" alt="" width="22" height="22"> Scalable Topics</a>
<span class="grow"></span>
<button id="theme" type="button" title="Colour theme">Theme: <span id="theme-name">auto</span></button>
</header>
<div id="doors" data-description="{description}"></div>
<script src="{script}"></script><script type="module" src="{start}"></script></body>
</html>
"""


@cache
def description() -> dict[str, Any]:
    """The OpenAPI description; it never changes while a process lives."""
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    schema: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema


class DescriptionView(DoorView):
    """The description for programs."""

    schema = None  # type: ignore[assignment]
    doors = {"GET": Door(summary="Describe the REST doors", right=Right.KNOWN, answers={200: dict[str, Any]})}

    def get(self, request: Request) -> Response:
        return Response(description())


class PagesView(DoorView):
    """The description for people, drawn by what the product brings along."""

    schema = None  # type: ignore[assignment]
    doors = {"GET": Door(summary="Show the REST doors", right=Right.KNOWN, answers={200: bytes})}

    # Django REST framework hands on any HttpResponse; its types only know its own.
    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]
        """Lead a person who is not logged in to the login; a program is answered as everywhere."""
        if isinstance(exc, Unauthenticated) and "text/html" in self.request.headers.get("Accept", ""):
            return redirect_to_login(self.request.get_full_path())
        return super().handle_exception(exc)

    def get(self, request: Request) -> HttpResponse:
        page = HttpResponse(
            PAGE.format(
                css=static(f"{ASSETS}/swagger-ui.css"),
                bar=static("webui/docs.css"),
                icon=static("webui/icon.svg"),
                home=reverse("webui:topics"),
                script=static(f"{ASSETS}/swagger-ui-bundle.js"),
                theme=static("webui/js/theme.js"),
                dark=static("webui/js/docs_theme.js"),
                start=static("webui/js/docs.js"),
                description=reverse("openapi"),
            )
        )
        page["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return page
