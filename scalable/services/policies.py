"""Resolves policies over what the settings of this installation say."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from scalable.domain import policy as domain
from scalable.domain.policy import EffectivePolicy

UNREADABLE = (TypeError, ValueError, ArithmeticError, AttributeError)
"""What `resolve` raises for a stored policy that nobody could have set."""


def resolve(
    topic: Mapping[str, Any] | None = None, namespace: Mapping[str, Any] | None = None
) -> EffectivePolicy:
    """Resolve a policy: topic over namespace over profile over the installation's settings (PIP-483)."""
    return domain.resolve(topic, namespace, defaults=settings.SCALABLE_POLICY_DEFAULTS)


def settings_key() -> str:
    """Give a text that differs where the settings that decisions are made from do."""
    told = [settings.SCALABLE_POLICY_DEFAULTS, settings.SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
