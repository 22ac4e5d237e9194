"""Joins what hears of commits to what commits."""

from django.apps import AppConfig

from scalable import announce
from scalable.api import bus


class ScalableConfig(AppConfig):
    """The control plane and its doors."""

    name = "scalable"
    verbose_name = "Scalable Topics"

    def ready(self) -> None:
        from scalable.services import rules  # models can be loaded only now

        announce.listen(rules.hear)
        announce.listen(bus.publish)
