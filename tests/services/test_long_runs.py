"""What goes on for days: scaling does not stop, and what is kept of it does not grow."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from django.apps import apps

from scalable.audit_models import AuditEvent
from scalable.models import Decision, Operation, PrunedSegment
from scalable.services import pruning
from scalable.services.autoscaling import evaluate_due_topics
from tests.services.ageing import keep
from tests.services.test_autoscaling import COLD, EAGER, HOT, let_time_come, report, ruled
from tests.services.test_autoscaling_options import finish
from tests.topology import layout_of

pytestmark = pytest.mark.django_db(transaction=True)

LOOKS_AN_HOUR = 6
MOST_SEGMENTS = 8
HISTORIES = {AuditEvent, Decision, Operation, PrunedSegment}
"""What is kept of each change; their bounds have tests of their own."""


def rows() -> Counter[str]:
    """Count the rows of each table but the histories."""
    models = apps.get_app_config("scalable").get_models()
    return Counter(
        {model.__name__: model._default_manager.count() for model in models if model not in HISTORIES}
    )


@pytest.mark.slow
def test_over_two_days_of_random_load_scaling_goes_on_and_nothing_grows() -> None:
    random = Random(51)
    topic = ruled("busy", segments=2, **{**EAGER, "maxSegments": MOST_SEGMENTS})
    keep(topic, 0)
    before, epochs = rows(), [layout_of(topic).epoch]
    for _ in range(48):
        for _ in range(LOOKS_AN_HOUR):
            active = layout_of(topic).active
            report(topic, {each.segment_id: random.choice([COLD, HOT]) for each in active})
            let_time_come(topic)
            assert evaluate_due_topics() == [topic.incarnation]
            finish(topic)
            pruning.prune_topic(incarnation=topic.incarnation)
        epochs.append(layout_of(topic).epoch)
        grown = rows() - before
        assert grown.keys() <= {"Segment", "SegmentLoad", "LoadWatermark", "Evaluation"}
        assert max(grown.values()) <= MOST_SEGMENTS
    assert all(earlier < later for earlier, later in pairwise(epochs))
