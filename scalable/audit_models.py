"""The table of the audit: who did what to what, when, with which outcome; rows are added and never changed.

A trigger of the migration refuses to change or delete a row that is younger than thirty days.
"""

from django.db import models


class AuditEvent(models.Model):
    """One thing that somebody did or tried; `outcome` is `done`, or the code of the error."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=300)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=1024)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    request_id = models.CharField(max_length=64, default="", blank=True)
    outcome = models.CharField(max_length=64)

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="audit_by_time"),
            models.Index(fields=["target", "-id"], name="audit_by_target"),
            models.Index(fields=["actor", "-id"], name="audit_by_actor"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            models.Index(fields=["outcome", "-id"], name="audit_by_outcome"),
        ]
