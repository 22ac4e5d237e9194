"""Joins what hears of commits to what commits."""

from django.apps import AppConfig
from django.core.checks import Tags, register

from scalable import announce
from scalable.api import bus, deployment


class ScalableConfig(AppConfig):
    """The control plane and its doors."""

    name = "scalable"
    verbose_name = "Scalable Topics"

    def ready(self) -> None:
        from scalable.api import refused_logins  # models can be loaded only now
        from scalable.services import rules

        register(deployment.check_secrets, Tags.security, deploy=True)
        register(deployment.check_lengths, Tags.security, deploy=True)
        register(deployment.check_encryption, Tags.security, deploy=True)
        register(deployment.check_names, Tags.security)
        announce.listen(rules.hear)
        announce.listen(bus.publish)
        refused_logins.listen()
