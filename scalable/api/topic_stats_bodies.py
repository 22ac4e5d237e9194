"""What REST answers about a topic as a whole: its statistics, as PIP-483 extends them."""

from typing import Any

from scalable.api.load_bodies import LoadsBody
from scalable.api.serializers import EffectivePolicyBody
from scalable.api.subscription_bodies import TopicStatsBody
from scalable.domain.policy import EffectivePolicy
from scalable.services.loads import TopicLoads


class ExtendedStatsBody(TopicStatsBody):
    """A topic's statistics with the last load of each active segment, and the policy that rules it."""

    load: LoadsBody
    auto_scale_policy: EffectivePolicyBody


def extension_of(loads: TopicLoads, policy: EffectivePolicy) -> dict[str, Any]:
    """Write what PIP-483 adds."""
    return {"load": loads.to_json(), "autoScalePolicy": policy.to_json()}
