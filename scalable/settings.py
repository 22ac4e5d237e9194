"""Django settings, from the environment; no other module of the service reads that.

Every name works without the environment, so that type checkers and `makemigrations` can load this module; a
node that serves gets `DATABASE_URL`, `REDIS_URL` and the secrets from its supervisor.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from scalable import environment as given
from scalable.domain.broker_settings import CHANGE_THRESHOLD, SETTINGS, change_threshold, policy_defaults
from scalable.domain.broker_settings import PREFIX as POLICIES
from scalable.domain.errors import PolicyInvalid, PolicyUnreadable
from scalable.wire.batch_header import MAX_BATCH_BYTES

BASE_DIR = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024
T = TypeVar("T")
# A machine that vanished answers nothing, and TCP alone would wait for it for a quarter of an hour.
SILENT_SERVER = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def _database(url: str, *, pool_size: int) -> dict[str, Any]:
    """Turn `postgresql://user:password@host:port/name?option=value` into a Django database."""
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    # A paused holder of a lock or of an open transaction must not block a takeover.
    lock_ms = given.whole("SCALABLE_LOCK_TIMEOUT_MS", 5_000)
    idle_ms = given.whole("SCALABLE_IDLE_TRANSACTION_TIMEOUT_MS", 10_000)
    options["options"] = f"-c lock_timeout={lock_ms} -c idle_in_transaction_session_timeout={idle_ms}"
    options["connect_timeout"] = 5
    for name, value in SILENT_SERVER.items():
        options.setdefault(name, value)
    options["application_name"] = "scalable"
    if pool_size:
        options["pool"] = {"min_size": 1, "max_size": pool_size, "max_idle": 60}
    return {
        "ENGINE": "scalable.store.engine",  # PostgreSQL
        "NAME": unquote(parts.path.lstrip("/")) or "scalable",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # what the pool hands out is alive, also behind a fail-over
        "OPTIONS": options,
    }


def _of_policies(read: Callable[[Mapping[str, str]], T]) -> T:
    """Read what goes by the names of PIP-483; the error names the setting beside the field of a policy."""
    try:
        return read(os.environ)
    except (PolicyUnreadable, PolicyInvalid) as error:
        named = [name for name in (*SETTINGS, CHANGE_THRESHOLD) if os.environ.get(name)]
        if isinstance(error, PolicyUnreadable):
            named = [name for name in named if error.field in {name, SETTINGS.get(name)}]
        raise ImproperlyConfigured(f"{', '.join(named)} cannot be read: {error}") from None


# The product's own settings

SCALABLE_DATA_DIR = Path(given.text("SCALABLE_DATA_DIR", str(BASE_DIR / ".data")))
SCALABLE_NODE_URL = given.site("SCALABLE_NODE_URL", "http://127.0.0.1:8080")
_token_secret = given.secret("SCALABLE_TOKEN_SECRET")
SCALABLE_TOKEN_SECRET = _token_secret or secrets.token_urlsafe(48)
SCALABLE_TOKEN_SECRET_GIVEN = bool(_token_secret)
SCALABLE_TLS_CA = given.file("SCALABLE_TLS_CA")
SCALABLE_TLS_CERT = given.file("SCALABLE_TLS_CERT")
SCALABLE_TLS_KEY = given.file("SCALABLE_TLS_KEY")
_database_url = given.server("DATABASE_URL", "", ("postgresql", "postgres"))
SCALABLE_DATABASE_GIVEN = bool(_database_url)
SCALABLE_TOKEN_PUBLIC_KEY = given.public_key("SCALABLE_TOKEN_PUBLIC_KEY")
SCALABLE_BEHIND_PROXY = given.flag("SCALABLE_BEHIND_PROXY", False)
SCALABLE_PROXY_ADDRESSES = given.networks("SCALABLE_PROXY_ADDRESSES", "127.0.0.1,::1")
SCALABLE_SUPERUSER_ROLES = given.names("SCALABLE_SUPERUSER_ROLES", "admin")
SCALABLE_ACCESS_RESYNC_SECONDS = given.number("SCALABLE_ACCESS_RESYNC_SECONDS", 2, least=0.01)
SCALABLE_LOGIN_ATTEMPTS = given.whole("SCALABLE_LOGIN_ATTEMPTS", 10, least=1)
SCALABLE_LOGIN_ATTEMPTS_PER_ADDRESS = given.whole("SCALABLE_LOGIN_ATTEMPTS_PER_ADDRESS", 50, least=1)
SCALABLE_LOGIN_WINDOW_SECONDS = given.whole("SCALABLE_LOGIN_WINDOW_SECONDS", 300, least=1)
SCALABLE_REQUESTS_PER_SECOND = given.number("SCALABLE_REQUESTS_PER_SECOND", 1_000)
SCALABLE_MAX_SOCKETS = given.whole("SCALABLE_MAX_SOCKETS", 50_000, least=1)
SCALABLE_MAX_SOCKETS_PER_ROLE = given.whole("SCALABLE_MAX_SOCKETS_PER_ROLE", 20_000, least=1)
SCALABLE_MAX_GRANTS = given.whole("SCALABLE_MAX_GRANTS", 100_000)
SCALABLE_MAX_TOKENS = given.whole("SCALABLE_MAX_TOKENS", 100_000)
SCALABLE_TOPICS_ENABLED = given.flag("SCALABLE_TOPICS_ENABLED", given.flag("scalableTopicEnabled", True))
SCALABLE_READ_ONLY = given.flag("SCALABLE_READ_ONLY", False)
SCALABLE_AUDIT_RETENTION_DAYS = given.whole("SCALABLE_AUDIT_RETENTION_DAYS", 365, most=36_600)
SCALABLE_NODE_HEARTBEAT_SECONDS = given.number("SCALABLE_NODE_HEARTBEAT_SECONDS", 2, least=0.01)
SCALABLE_NODE_TIMEOUT_SECONDS = given.number("SCALABLE_NODE_TIMEOUT_SECONDS", 10, least=0.01)
if SCALABLE_NODE_HEARTBEAT_SECONDS >= SCALABLE_NODE_TIMEOUT_SECONDS:
    raise ImproperlyConfigured(
        f"SCALABLE_NODE_HEARTBEAT_SECONDS={SCALABLE_NODE_HEARTBEAT_SECONDS:g} is not below"
        f" SCALABLE_NODE_TIMEOUT_SECONDS={SCALABLE_NODE_TIMEOUT_SECONDS:g}: every node would count as dead"
    )
SCALABLE_OPERATION_LEASE_SECONDS = given.number("SCALABLE_OPERATION_LEASE_SECONDS", 30, least=0.01)
SCALABLE_OPERATION_SWEEP_SECONDS = given.number("SCALABLE_OPERATION_SWEEP_SECONDS", 5, least=0.01)
SCALABLE_OPERATION_WAIT_SECONDS = given.number("SCALABLE_OPERATION_WAIT_SECONDS", 30)
SCALABLE_SESSION_GRACE_SECONDS = given.number("SCALABLE_SESSION_GRACE_SECONDS", 60)
SCALABLE_HANDOVER_SECONDS = given.number("SCALABLE_HANDOVER_SECONDS", 10)
SCALABLE_RETENTION_SECONDS = given.whole("SCALABLE_RETENTION_SECONDS", 0, most=given.MOST_SECONDS)
SCALABLE_AUTO_CREATE_TOPICS = given.flag("SCALABLE_AUTO_CREATE_TOPICS", False)
SCALABLE_RETENTION_SWEEP_SECONDS = given.number("SCALABLE_RETENTION_SWEEP_SECONDS", 30, least=0.01)
SCALABLE_ENTRY_BUCKET_BUDGET = given.whole("SCALABLE_ENTRY_BUCKET_BUDGET", 4, least=1)
SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT = given.whole("SCALABLE_ENTRY_BUCKET_MAX_PER_SEGMENT", 1_024, least=1)
SCALABLE_AUTOSCALE_TICK_SECONDS = given.number("SCALABLE_AUTOSCALE_TICK_SECONDS", 1, least=0.01)
SCALABLE_POLICY_DEFAULTS = _of_policies(policy_defaults)
SCALABLE_LOAD_CHANGE_THRESHOLD = _of_policies(change_threshold)
SCALABLE_FLAP_WINDOW_SECONDS = given.number("SCALABLE_FLAP_WINDOW_SECONDS", 3_600)
SCALABLE_METRICS_TOPICS = given.whole("SCALABLE_METRICS_TOPICS", 50)
SCALABLE_METRICS_SEGMENTS = given.whole("SCALABLE_METRICS_SEGMENTS", 1_000)
SCALABLE_METRICS_CACHE_SECONDS = given.number("SCALABLE_METRICS_CACHE_SECONDS", 10)
SCALABLE_WATCH_RESYNC_SECONDS = given.number("SCALABLE_WATCH_RESYNC_SECONDS", 4, least=0.01)
SCALABLE_HINTS_ENABLED = given.flag("SCALABLE_HINTS_ENABLED", True)
SCALABLE_MAX_FRAME_BYTES = given.whole("SCALABLE_MAX_FRAME_BYTES", 8 * MIB, least=MIB // 16, most=16 * MIB)
SCALABLE_MAX_MESSAGE_BYTES = given.whole("SCALABLE_MAX_MESSAGE_BYTES", 5 * MIB, least=1)
if (_most := min(SCALABLE_MAX_FRAME_BYTES, MAX_BATCH_BYTES) * 7 // 8) < SCALABLE_MAX_MESSAGE_BYTES:
    raise ImproperlyConfigured(
        f"SCALABLE_MAX_MESSAGE_BYTES={SCALABLE_MAX_MESSAGE_BYTES} cannot be sent: {_most} is the most, seven"
        " eighths of SCALABLE_MAX_FRAME_BYTES or of a batch (8 MiB), for keys and heads want room, too"
    )
SCALABLE_PRODUCE_PERMITS = given.whole("SCALABLE_PRODUCE_PERMITS", 64, least=1)
SCALABLE_CONSUME_MAX_PERMITS = given.whole("SCALABLE_CONSUME_MAX_PERMITS", 10_000, least=1)
SCALABLE_QUEUE_ACK_TIMEOUT_SECONDS = given.number("SCALABLE_QUEUE_ACK_TIMEOUT_SECONDS", 30, least=0.01)
SCALABLE_REQUEST_HEAD_SECONDS = given.number("SCALABLE_REQUEST_HEAD_SECONDS", 30, least=0.01)
SCALABLE_REQUEST_ANSWER_SECONDS = given.number("SCALABLE_REQUEST_ANSWER_SECONDS", 30, least=0.01)
SCALABLE_REQUEST_BODY_SECONDS = given.number("SCALABLE_REQUEST_BODY_SECONDS", 30, least=0.01)
SCALABLE_SOCKET_HELLO_SECONDS = given.number("SCALABLE_SOCKET_HELLO_SECONDS", 10, least=0.01)
SCALABLE_SOCKET_SEND_SECONDS = given.number("SCALABLE_SOCKET_SEND_SECONDS", 10, least=0.01)
SCALABLE_WATCH_QUEUE_FRAMES = given.whole("SCALABLE_WATCH_QUEUE_FRAMES", 64, least=1)
SCALABLE_EXECUTOR_THREADS = given.whole("SCALABLE_EXECUTOR_THREADS", 8, least=1)
SCALABLE_REQUEST_CONNECTIONS = given.whole("SCALABLE_REQUEST_CONNECTIONS", 8, least=1)
_segments_database_url = given.server("SCALABLE_SEGMENTS_DATABASE_URL", "", ("postgresql", "postgres"))
SCALABLE_SEGMENT_PORT = "external" if _segments_database_url else "embedded"
SCALABLE_REDIS_URL = given.server("REDIS_URL", "redis://127.0.0.1:6379/0", ("redis", "rediss"))
SCALABLE_REDIS_PREFIX = "scalable:"
SPARK_MASTER = given.text("SPARK_MASTER", "local[2]")

# Django

DEBUG = False
_secret_key = given.secret("SCALABLE_SECRET_KEY")
SECRET_KEY = _secret_key or secrets.token_urlsafe(48)
SCALABLE_SECRET_KEY_GIVEN = bool(_secret_key)
_node = urlsplit(SCALABLE_NODE_URL)
_is_encrypted = _node.scheme == "https"
ALLOWED_HOSTS = [*given.names("SCALABLE_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]"), _node.hostname or ""]
ROOT_URLCONF = "scalable.urls"
ASGI_APPLICATION = "scalable.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",  # its site is in scalable.admin
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "scalable",
    "tasks",
    "webui",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "scalable.api.headers.SafeHeaders",
    "scalable.api.hosts.NamedHost",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "scalable.api.logins.LimitedLogins",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "scalable.api.pages.GuardedPages",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# A pool serves the executor's threads, which keep theirs, and Django's request threads: with a smaller one
# for the segments, the threads that come late would never get a connection. Without DATABASE_URL there is
# nothing to serve: a pool would only make tooling wait for a server that is not there.
_pool_size = SCALABLE_EXECUTOR_THREADS + SCALABLE_REQUEST_CONNECTIONS
DATABASES = {
    "default": _database(
        _database_url or "postgresql://127.0.0.1/scalable", pool_size=_pool_size if _database_url else 0
    ),
}
if _segments_database_url:
    DATABASES["segments"] = _database(_segments_database_url, pool_size=_pool_size)

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 60

LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

SESSION_ENGINE = "scalable.api.sessions"
# Cookies know no port: two instances on one host would log each other's users out if the name were the same.
SESSION_COOKIE_NAME = f"scalable_session_{_node.port or _node.scheme}"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = given.flag("SCALABLE_SECURE_COOKIES", _is_encrypted)
SESSION_COOKIE_AGE = given.whole("SCALABLE_SESSION_SECONDS", 12 * 3600, least=1)
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [SCALABLE_NODE_URL, *given.origins("SCALABLE_TRUSTED_ORIGINS")]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = given.flag("SCALABLE_REDIRECT_TO_HTTPS", _is_encrypted)
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$"]  # probes come past the proxy
_is_lasting = _is_encrypted and _node.hostname != "localhost"
SECURE_HSTS_SECONDS = given.whole("SCALABLE_HSTS_SECONDS", 31_536_000 if _is_lasting else 0)
# Whether other hosts of the domain are encrypted is not for this product to say.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = SCALABLE_MAX_FRAME_BYTES

# REST

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "scalable.api.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "scalable.api.errors.exception_handler",
}
REST_TAGS = (
    *("Topics", "Split and merge", "Autoscaler", "Subscriptions", "Messages", "Load", "Nodes", "Jobs"),
    *("Tenants and namespaces", "Access", "Segments (system)"),
)
SPECTACULAR_SETTINGS = {
    "TITLE": "Scalable Topics",
    "DESCRIPTION": "Topics whose segments split and merge while producers and consumers run."
    " A path answers 405 to a method that is not described here, and names in Allow those that are.",
    "VERSION": "2",
    "TAGS": [{"name": name} for name in REST_TAGS],
    "SERVE_INCLUDE_SCHEMA": False,
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # the description never changes: tests look at it
    "POSTPROCESSING_HOOKS": [],  # it would give names of its own to choices that several bodies have
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# Celery: the row of an operation is the truth and a task only a nudge, so nothing is kept of its result, and
# a message stays unacknowledged until its work is done.

CELERY_BROKER_URL = SCALABLE_REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker outlasts its broker, however long that is away
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{SCALABLE_REDIS_PREFIX}celery:",
    "visibility_timeout": given.whole("SCALABLE_TASK_VISIBILITY_SECONDS", 300, least=1),
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
}
CELERY_TASK_DEFAULT_QUEUE = "scalable"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY_POLICY = {
    "max_retries": 2,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.5,
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_RESULT_BACKEND = None
CELERY_TIMEZONE = TIME_ZONE

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "trace": {"()": "scalable.trace.TraceFilter"},
        "calm_refusals": {"()": "scalable.trace.CalmRefusals"},
        "without_query": {"()": "scalable.trace.WithoutQuery"},
    },
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s%(about)s"},
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s %(operation_id)s %(actor)s",
        },
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": given.choice("SCALABLE_LOG_FORMAT", "line", ("line", "json")),
            "filters": ["trace", "calm_refusals"],
        }
    },
    "root": {"handlers": ["console"], "level": given.choice("SCALABLE_LOG_LEVEL", "INFO", _LOG_LEVELS)},
    "loggers": {
        # A line for each beat of the clock would bury everything else.
        **{name: {"level": "WARNING"} for name in ("celery.worker.strategy", "celery.app.trace")},
        # Any stranger can send it, and it tells no more than the line of scalable.access.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "uvicorn": {"handlers": [], "propagate": True},  # its own would write lines of another form
        "uvicorn.error": {"filters": ["without_query"]},
        # Silent, for scalable.access tells of each request; configuring "uvicorn" would have it speak again.
        "uvicorn.access": {"handlers": [], "propagate": False, "filters": ["without_query"]},
    },
}

# Behind all that is read.
SCALABLE_IGNORED_NAMES = given.ignored(os.environ, {POLICIES: {*SETTINGS, CHANGE_THRESHOLD}})
