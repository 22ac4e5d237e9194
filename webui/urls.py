"""The dashboard's pages."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from webui import views

app_name = "webui"
urlpatterns = [
    path("", views.home, name="home"),
    path("login", views.guarded(LoginView.as_view(template_name="webui/login.html")), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("favicon.ico", views.favicon, name="favicon"),
    path("jobs", views.jobs, name="jobs"),
    path("nodes", views.nodes, name="nodes"),
    path("topics", views.topics, name="topics"),
    path("namespaces/<str:tenant>/<str:namespace>", views.namespace, name="namespace"),
    path("topics/<str:tenant>/<str:namespace>/<str:topic>", views.topic, name="topic"),
]
