"""A task that does nothing but answer."""

import redis
from celery import shared_task
from django.conf import settings

ANSWERS = "bench:no-op"


@shared_task
def answer() -> None:
    """Tell that a worker got here."""
    with redis.Redis.from_url(settings.SCALABLE_REDIS_URL) as client:
        client.rpush(ANSWERS, "done")
