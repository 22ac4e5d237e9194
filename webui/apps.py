"""The dashboard as a Django application."""

from django.apps import AppConfig


class WebuiConfig(AppConfig):
    """Shell pages and static modules; everything shown comes from the public API and the watch sockets."""

    name = "webui"
