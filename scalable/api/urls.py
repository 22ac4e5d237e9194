"""Every REST door, by its path; the dashboard and the API are told apart by the prefix `/admin/v2/`."""

from django.urls import URLPattern, path

from scalable.api import admin_urls
from scalable.api.paths import FIGURES, LOAD, NAMESPACE, SUBSCRIPTION, TENANT, TOPIC, TOPICS
from scalable.api.views import (
    audit,
    autoscaling,
    description,
    jobs,
    lifetimes,
    loads,
    messages,
    metrics,
    nodes,
    permissions,
    properties,
    scaling,
    subscriptions,
    tokens,
    topics,
)
from scalable.api.views.base import DoorView


def _permissions(
    name: str, root: str, every: type[DoorView], one: type[DoorView]
) -> tuple[URLPattern, URLPattern]:
    return (
        path(f"{root}/permissions", every.as_view(), name=f"{name}-permissions"),
        path(f"{root}/permissions/<str:role>", one.as_view(), name=f"{name}-role-permissions"),
    )


urlpatterns: list[URLPattern] = [
    *admin_urls.urlpatterns,
    path(f"{TOPICS}/<str:tenant>/<str:namespace>", topics.NamespaceView.as_view(), name="namespace"),
    path(f"{FIGURES}/<str:tenant>/<str:namespace>", topics.FiguresView.as_view(), name="figures"),
    path(TOPIC, topics.TopicView.as_view(), name="topic"),
    path(f"{TOPIC}/properties", properties.PropertiesView.as_view(), name="properties"),
    path(f"{TOPIC}/split/<str:segment_id>", scaling.SplitView.as_view(), name="split"),
    path(f"{TOPIC}/merge", scaling.MergeView.as_view(), name="merge"),
    path(f"{TOPIC}/rebucket/<str:segment_id>", scaling.RebucketView.as_view(), name="rebucket"),
    path(
        f"{TOPIC}/merge/<str:segment_id>/<str:other_segment_id>",
        scaling.MergePairView.as_view(),
        name="merge-pair",
    ),
    path(f"{TOPIC}/operations", scaling.OperationsView.as_view(), name="operations"),
    path(f"{TOPIC}/operations/<str:operation_id>", scaling.OperationView.as_view(), name="operation"),
    path(f"{TOPIC}/operations/<str:operation_id>/abort", scaling.AbortView.as_view(), name="abort"),
    path(f"{TOPIC}/decisions", autoscaling.DecisionsView.as_view(), name="decisions"),
    path(
        f"{TOPIC}/decisions/preview",
        autoscaling.DecisionPreviewView.as_view(),
        name="decision-preview",
    ),
    path(f"{TOPIC}/autoScalePolicy", autoscaling.PolicyView.as_view(), name="policy"),
    path(
        f"{TOPIC}/autoScalePolicy/effective",
        autoscaling.EffectivePolicyView.as_view(),
        name="effective-policy",
    ),
    path(f"{TOPIC}/loads", loads.LoadsView.as_view(), name="loads"),
    path(f"{TOPIC}/tiles", loads.TilesView.as_view(), name="tiles"),
    path(f"{TOPIC}/positions", messages.PositionsView.as_view(), name="positions"),
    path(f"{TOPIC}/segments/<str:segment_id>/batches", messages.BatchesView.as_view(), name="batches"),
    path(f"{TOPIC}/stats", subscriptions.TopicStatsView.as_view(), name="topic-stats"),
    path(f"{TOPIC}/subscriptions", subscriptions.SubscriptionsView.as_view(), name="subscriptions"),
    path(SUBSCRIPTION, subscriptions.SubscriptionView.as_view(), name="subscription"),
    path(f"{SUBSCRIPTION}/assignments", subscriptions.AssignmentsView.as_view(), name="assignments"),
    path(f"{SUBSCRIPTION}/seek", subscriptions.SeekView.as_view(), name="seek"),
    path(f"{SUBSCRIPTION}/skip-all", subscriptions.SkipAllView.as_view(), name="skip-all"),
    path(f"{SUBSCRIPTION}/skip", subscriptions.SkipView.as_view(), name="skip"),
    path(f"{SUBSCRIPTION}/peek", subscriptions.PeekView.as_view(), name="peek"),
    path(f"{LOAD}/reports", loads.LoadReportView.as_view(), name="load-reports"),
    path(f"{LOAD}/tiles", loads.TileReportView.as_view(), name="tile-reports"),
    path("admin/v2/nodes", nodes.NodesView.as_view(), name="nodes"),
    path("admin/v2/nodes/<str:node_id>/topics", nodes.LedTopicsView.as_view(), name="led-topics"),
    path("admin/v2/jobs", jobs.JobsView.as_view(), name="jobs"),
    path("admin/v2/jobs/<str:job_id>", jobs.JobView.as_view(), name="job"),
    path("admin/v2/jobs/<str:job_id>/cancel", jobs.CancelJobView.as_view(), name="cancel-job"),
    path("admin/v2/jobs/<str:job_id>/files/<str:file>", jobs.JobFileView.as_view(), name="job-file"),
    path(f"{TOPIC}/lifetimes", lifetimes.TopicLifetimesView.as_view(), name="lifetimes"),
    path(NAMESPACE, lifetimes.NamespaceLifeView.as_view(), name="namespace-life"),
    path(f"{NAMESPACE}/lifetimes", lifetimes.NamespaceLifetimesView.as_view(), name="namespace-lifetimes"),
    path("metrics", metrics.MetricsView.as_view(), name="metrics"),
    *_permissions("tenant", TENANT, permissions.TenantPermissionsView, permissions.TenantRolePermissionsView),
    *_permissions(
        "namespace",
        NAMESPACE,
        permissions.NamespacePermissionsView,
        permissions.NamespaceRolePermissionsView,
    ),
    *_permissions("topic", TOPIC, permissions.TopicPermissionsView, permissions.TopicRolePermissionsView),
    path("admin/v2/audit", audit.AuditView.as_view(), name="audit"),
    path("admin/v2/tokens", tokens.TokensView.as_view(), name="tokens"),
    path("admin/v2/tokens/<str:token_id>", tokens.TokenView.as_view(), name="token"),
    path("openapi.json", description.DescriptionView.as_view(), name="openapi"),
    path("docs", description.PagesView.as_view(), name="docs"),
]


def is_of_topics(entry: URLPattern) -> bool:
    """True for the doors of scalable topics themselves, as Pulsar has them, and those beside them."""
    route = str(entry.pattern)
    of_their_own = route.startswith((TOPICS, FIGURES, LOAD, "admin/v2/segments"))
    return of_their_own or "scalableTopic" in route or route.endswith("/lifetimes")
