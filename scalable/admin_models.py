"""Tables of the administrative doors."""

from django.db import models
from django.db.models import Q


class IdempotentRequest(models.Model):
    """A request that came with an idempotency key, and its answer once there is one.

    While it is worked on, `status` is NULL; what is not answered by `expires_at` may be done again, unless
    `is_done` tells that its effect was committed.
    """

    role = models.CharField(max_length=255)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.IntegerField(null=True)
    is_done = models.BooleanField(db_default=False)
    body = models.TextField(default="")
    headers = models.JSONField(default=dict)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["role", "key"], name="idempotent_request_unique"),
            models.CheckConstraint(
                condition=Q(status=None) | Q(status__gte=200, status__lt=500),
                name="idempotent_request_status",
            ),
        ]
