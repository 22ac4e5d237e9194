"""Resolves policies over what the settings of this installation say."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from scalable.domain import policy as domain
from scalable.domain.policy import EffectivePolicy


def resolve(
    topic: Mapping[str, Any] | None = None, namespace: Mapping[str, Any] | None = None
) -> EffectivePolicy:
    """Resolve a policy: topic over namespace over profile over the installation's settings (PIP-483)."""
    return domain.resolve(topic, namespace, defaults=settings.SCALABLE_POLICY_DEFAULTS)
