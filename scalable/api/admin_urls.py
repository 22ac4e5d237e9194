"""REST doors of tenants, namespaces and single segments, and of the questions about a topic's layout."""

from django.urls import URLPattern, path

from scalable.api.paths import NAMESPACE, SEGMENT, TENANT, TOPIC
from scalable.api.views import layout, migration, namespace_policy, scaling, segment_stats, segments, tenants

SEGMENT_SUBSCRIPTION = f"{SEGMENT}/subscription/<str:subscription>"

urlpatterns: list[URLPattern] = [
    path("admin/v2/tenants", tenants.TenantsView.as_view(), name="tenants"),
    path(TENANT, tenants.TenantView.as_view(), name="tenant"),
    path(
        "admin/v2/namespaces/<str:tenant>", tenants.TenantNamespacesView.as_view(), name="tenant-namespaces"
    ),
    path(
        f"{NAMESPACE}/scalableTopicAutoScalePolicy/effective",
        namespace_policy.EffectiveNamespacePolicyView.as_view(),
        name="effective-namespace-policy",
    ),
    path(
        f"{NAMESPACE}/scalableTopicAutoScalePolicy",
        namespace_policy.NamespacePolicyView.as_view(),
        name="namespace-policy",
    ),
    path(f"{TOPIC}/locate", layout.LocateView.as_view(), name="locate"),
    path(f"{TOPIC}/lineage", layout.LineageView.as_view(), name="lineage"),
    path(f"{TOPIC}/prunedSegments", layout.HistoryView.as_view(), name="pruned-segments"),
    path(f"{TOPIC}/operations/<str:operation_id>/retry", scaling.RetryView.as_view(), name="retry"),
    path(f"{TOPIC}/migrate", migration.MigrateView.as_view(), name="migrate"),
    path(
        f"{TOPIC}/segments/<str:segment_id>/stats",
        segment_stats.SegmentStatsView.as_view(),
        name="segment-stats",
    ),
    path(SEGMENT, segments.SegmentView.as_view(), name="segment"),
    path(f"{SEGMENT}/terminate", segments.TerminateSegmentView.as_view(), name="segment-terminate"),
    path(SEGMENT_SUBSCRIPTION, segments.SegmentSubscriptionView.as_view(), name="segment-subscription"),
    path(f"{SEGMENT_SUBSCRIPTION}/backlog", segments.SegmentBacklogView.as_view(), name="segment-backlog"),
    path(f"{SEGMENT_SUBSCRIPTION}/seek", segments.SegmentSeekView.as_view(), name="segment-seek"),
    path(f"{SEGMENT_SUBSCRIPTION}/skip-all", segments.SegmentSkipAllView.as_view(), name="segment-skip-all"),
]
