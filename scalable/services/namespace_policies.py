"""What a namespace sets for its topics: the auto-scale policy, and all of it at once."""

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from scalable import announce
from scalable.domain.policy import EffectivePolicy, parse_override, validate
from scalable.services import auditing
from scalable.services.lifetimes import Lifetimes
from scalable.services.policies import resolve
from scalable.store import namespaces as store


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """A namespace with what it sets; what it does not set is None."""

    auto_scale_policy: dict[str, Any] | None
    lifetimes: Lifetimes
    deleting: bool
    created_at_ms: int


def settings_of(*, tenant: str, namespace: str) -> NamespaceSettings:
    """Read what a namespace sets; raises NamespaceNotFound."""
    row = store.settings_of(tenant, namespace)
    lifetimes = Lifetimes(row.retention_seconds, row.session_grace_seconds)
    return NamespaceSettings(row.auto_scale_policy, lifetimes, row.deleting, row.created_at_ms)


def effective_policy(*, tenant: str, namespace: str) -> EffectivePolicy:
    """Resolve the policy of topics that set nothing themselves, with sources; raises NamespaceNotFound."""
    return resolve(namespace=store.settings_of(tenant, namespace).auto_scale_policy)


def set_auto_scale_policy(*, tenant: str, namespace: str, override: object, actor: str) -> None:
    """Replace what a namespace sets of the policy of its topics; each takes it at its next evaluation.

    Raises NamespaceNotFound, UnknownField, PolicyUnreadable, and PolicyInvalid for what contradicts itself
    over the defaults. A topic whose own policy no longer goes with it is not scaled meanwhile.
    """
    parsed = parse_override(override)
    with transaction.atomic():
        found = store.lock(tenant, namespace)
        validate(resolve(namespace=parsed).policy)
        auditing.record(
            "namespace.policy",
            found,
            actor=actor,
            before=store.settings_of(tenant, namespace).auto_scale_policy,
            after=parsed,
        )
        _write(found, parsed)


def remove_auto_scale_policy(*, tenant: str, namespace: str, actor: str) -> None:
    """Let a namespace set nothing of the policy; raises NamespaceNotFound."""
    with transaction.atomic():
        found = store.lock(tenant, namespace)
        before = store.settings_of(tenant, namespace).auto_scale_policy
        auditing.record("namespace.policy", found, actor=actor, before=before)
        _write(found, None)


def _write(namespace: store.NamespaceView, override: dict[str, Any] | None) -> None:
    store.write_auto_scale_policy(namespace.namespace_id, override)
    announce.publish(announce.NamespacePolicyChanged(namespace.tenant, namespace.name))
