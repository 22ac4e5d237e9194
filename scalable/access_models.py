"""Tables of access: tenants, what roles were granted where, and the tokens that were given out.

Triggers of the migration stamp every change of these tables, so that nodes notice it whoever made it.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import MD5, Concat

ACTIONS = ["produce", "consume", "lookup", "admin"]


class Tenant(models.Model):
    """A tenant; its admin roles may do all in its namespaces, and make and delete them."""

    name = models.CharField(max_length=255, unique=True)
    admin_roles = ArrayField(models.CharField(max_length=255), default=list)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="tenant_named"),
            models.CheckConstraint(
                condition=~Q(name="system") | Q(admin_roles=[]), name="tenant_system_has_no_admins"
            ),
        ]


class Grant(models.Model):
    """What a role may do in a tenant, a namespace or a topic, which are named and need not exist."""

    tenant = models.CharField(max_length=255)
    namespace = models.CharField(max_length=255, default="", blank=True)
    topic = models.CharField(max_length=255, default="", blank=True)
    role = models.CharField(max_length=255)
    actions = ArrayField(models.CharField(max_length=8))
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            # Four names of 255 characters would not fit into an entry of an index.
            models.UniqueConstraint(
                F("tenant"),
                MD5(Concat("namespace", Value("/"), "topic", Value("/"), "role")),
                name="grant_unique",
            ),
            models.CheckConstraint(
                condition=~Q(actions=[]) & Q(actions__contained_by=ACTIONS), name="grant_actions"
            ),
            models.CheckConstraint(
                condition=~Q(tenant="") & ~Q(role="") & (Q(topic="") | ~Q(namespace="")), name="grant_scope"
            ),
            models.CheckConstraint(condition=~Q(tenant="system"), name="grant_never_in_system"),
        ]
        indexes = [models.Index(fields=["tenant", "namespace"], name="grant_by_scope")]


class ServiceToken(models.Model):
    """A token that was given out, or is revoked, by its id (`jti`); the token itself is kept nowhere."""

    token_id = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=255)
    created_by = models.CharField(max_length=255)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(token_id="") & ~Q(role=""), name="service_token_named"),
            models.CheckConstraint(
                condition=Q(revoked_at=None) | Q(revoked_at__gte=F("created_at")),
                name="service_token_revoked",
            ),
        ]
        indexes = [
            models.Index(fields=["token_id"], condition=Q(revoked_at__isnull=False), name="revoked_tokens")
        ]


class AccessStamp(models.Model):
    """The one row that changes with every change of access."""

    stamp = models.UUIDField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="access_stamp_once")]
