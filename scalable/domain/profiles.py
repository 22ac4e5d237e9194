"""The named sets of policy defaults: each profile by the fields in which it differs from PIP-483's defaults.

A topic or namespace chooses one by the field `profile`; fields set on either level win over it
(docs/autoscale.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PULSAR_5: Mapping[str, Any] = {"entryBucketLane": True}
"""What Apache Pulsar 5.0 does: as PIP-483, and consumers of a cold topic share segments by entry buckets."""

RECOMMENDED: Mapping[str, Any] = {
    "autoScaleIntervalSeconds": 10,
    "splitMsgRateInThreshold": 11_500,
    "splitCooldownSeconds": 150,
    "mergeCooldownSeconds": 600,
    "mergeWindowSeconds": 0,
    "maxDagDepth": 1_000,
    "maxActionsPerTick": 64,
    "maxSplitChildren": 16,
    "splitTargetShare": 1.0,
    "loadBalancedSplit": True,
    "isolateDominantKey": True,
    "lookAheadSeconds": 20,
    "minMergeSegments": 4,
    "maxMergeSegments": 16,
    "mergeTargetShare": 0.9,
    "mergePeakSeconds": 1_200,
    "mergeMinAgeSeconds": 600,
    "mergeRepeatSeconds": 7_200,
    "mergeKeepsConsumers": True,
    "mergeMakesRoom": True,
}
"""Quick and wide splits ahead of the trend, slow and thrifty merges (docs/autoscale.md)."""

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "pip-483": {},
    "pulsar-5.0": PULSAR_5,
    "recommended": RECOMMENDED,
}
