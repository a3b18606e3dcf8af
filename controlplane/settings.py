"""Settings of every process. Each deployment value comes from the environment, with a safe default.

`make demo` and `make run` set what they need; docs/operations.md lists the variables.
"""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import dj_database_url
import django_stubs_ext
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

django_stubs_ext.monkeypatch()


def _flag(name: str, *, default: bool = False) -> bool:
    """Read a boolean from the environment: 1, true, yes and on are true."""
    return os.environ.get(name, str(default)).strip().lower() in {"1", "true", "yes", "on"}


BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(os.environ.get("VAR", BASE_DIR / "var")).resolve()

DEBUG = _flag("DEBUG")
# A key made up at start is safe, but its sessions end with the process: `make run` insists on a real one.
SECRET_KEY = os.environ.get("SECRET_KEY") or secrets.token_urlsafe(48)
SECRET_KEY_IS_SET = "SECRET_KEY" in os.environ
# A Fernet key (32 bytes, URL-safe base64) that encrypts tenants' secrets at rest. Empty: no secret can be stored.
FIELD_KEY = os.environ.get("FIELD_KEY", "")
PUBLIC_URL = os.environ.get("PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")
ALLOWED_HOSTS = [
    host for host in os.environ.get("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",") if host
]
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
SERVES_HTTPS = PUBLIC_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SERVES_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if SERVES_HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _flag("BEHIND_PROXY") else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.forms",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "csp",
    "controlplane",
    "controlplane.common",
    "tenants",
    "queues",
    "scheduler",
]

MIDDLEWARE = [
    "controlplane.common.middleware.RequestMiddleware",
    "controlplane.common.middleware.WellFormedMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "controlplane.common.middleware.StaticFilesMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "controlplane.common.preferences.PreferencesMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
                "csp.context_processors.nonce",
                "controlplane.common.preferences.preferences",
            ]
        },
    }
]
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "EXCLUDE_URL_PREFIXES": [],
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "manifest-src": [SELF],
    },
}


def _database() -> dict[str, Any]:
    """PostgreSQL by DATABASE_URL; without it SQLite under VAR, in the mode DESIGN.md section 3 asks for."""
    url = os.environ.get("DATABASE_URL") or f"sqlite:///{VAR / 'muster.sqlite3'}"
    found: dict[str, Any] = dict(
        dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True)
    )
    if found["ENGINE"].endswith("sqlite3"):
        VAR.mkdir(parents=True, exist_ok=True)
        found["CONN_MAX_AGE"] = None
        found["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
        # A file, not memory: tests look at one database from several threads and processes.
        found["TEST"] = {"NAME": os.environ.get("TEST_SQLITE", str(VAR / "test.sqlite3"))}
    else:
        found["OPTIONS"] = found.get("OPTIONS", {}) | {"connect_timeout": 5}
    return found


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_ADAPTER = "tenants.accounts.ClosedSignup"
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
if os.environ.get("OIDC_SERVER_URL"):
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "APPS": [
            {
                "provider_id": "oidc",
                "name": os.environ.get("OIDC_NAME", "Single sign-on"),
                "client_id": os.environ.get("OIDC_CLIENT_ID", ""),
                "secret": os.environ.get("OIDC_CLIENT_SECRET", ""),
                "settings": {"server_url": os.environ["OIDC_SERVER_URL"]},
            }
        ]
    }

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = os.environ.get("TIME_ZONE", "UTC")
USE_TZ = True
USE_I18N = True

STATIC_URL = "/static/"
# Named where an image has them collected when it is built.
STATIC_IS_BUILT = "STATIC_ROOT" in os.environ
STATIC_ROOT = Path(os.environ.get("STATIC_ROOT", VAR / "static"))
STATICFILES_DIRS = [BASE_DIR / "static"]
# Hashed names need `collectstatic`, which `make demo` and `make run` do; tests read the sources.
HASHED_STATIC = _flag("HASHED_STATIC")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if HASHED_STATIC
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not HASHED_STATIC

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenants.authentication.TokenAuthentication",
        "tenants.authentication.CookieAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenants.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.common.parsers.LimitedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "controlplane.common.pagination.SeekPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is 405 with Allow; what fields there are says the schema
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_THROTTLE_CLASSES": ["tenants.throttling.TokenRateThrottle"],
    "EXCEPTION_HANDLER": "controlplane.common.problems.problem_response",
    "DATETIME_FORMAT": "iso-8601",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Muster",
    "DESCRIPTION": "Submit gangs, watch them, and manage the shared GPU cluster they run on.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.common.openapi.add_problems",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    # Fields of one name with different words: each set gets a name of its own.
    "ENUM_NAME_OVERRIDES": {
        "TopologyModeEnum": ["required", "preferred"],
        "ClusterModeEnum": ["observe", "schedule", "paused"],
        "QueueStateEnum": ["open", "closed", "held"],
        "QuotaRequestStateEnum": ["open", "accepted", "refused"],
        "SimulationVerdictEnum": ["starts_now", "queued", "never"],
        "SecretKindEnum": "tenants.models.Secret.KINDS",
        "HealthRuleModeEnum": ["off", "propose", "act"],
        "WindowKindEnum": ["maintenance", "reserved"],
        "NoticeKindEnum": ["preemption", "maintenance", "resize", "time_limit"],
        "NodeReportKindEnum": ["xid", "ecc", "nvlink", "thermal", "hang", "other"],
    },
}
# Calls a minute and how many at once, for each token or browser user (tenants/throttling.py). Ten thousand jobs
# in batches of 500 are 20 calls; a script that submits them one by one still gets 50 a second.
RATE_LIMITS = {
    **{"read": (6000, 1500), "submit": (3000, 1500), "simulate": (600, 120)},
    # All replicas of one attempt together.
    "attempt": (12_000, 3000),
}
MAX_BODY_BYTES = 8 * 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES

# Celery carries nudges, mail and retention; nothing depends on a message (rule 2).
CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "filesystem://")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_DEFAULT_QUEUE = "general"
CELERY_TASK_ROUTES = {"scheduler.tasks.nudge_clusters": {"queue": "scheduler"}}
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
BROKER_FOLDER = VAR / "broker"
if CELERY_BROKER_URL.startswith("filesystem"):
    (BROKER_FOLDER / "control").mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
        "data_folder_in": str(BROKER_FOLDER),
        "data_folder_out": str(BROKER_FOLDER),
        "control_folder": str(BROKER_FOLDER / "control"),
        "processed_folder": str(BROKER_FOLDER / "processed"),
        "store_processed": False,
        "polling_interval": 0.1,
    }
else:
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "socket_timeout": 5,
        "socket_connect_timeout": 2,
        "visibility_timeout": 3600,
    }
CELERY_BEAT_SCHEDULE = {
    "nudge-clusters": {
        "task": "scheduler.tasks.nudge_clusters",
        "schedule": 5.0,
        "options": {"expires": 1},
    },
    "prune": {
        "task": "queues.tasks.prune_old_rows",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
    "prune-alerts": {
        "task": "scheduler.tasks.prune_old_alerts",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
    "prune-logs": {
        "task": "scheduler.tasks.prune_old_logs",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
}
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR / "beat")

# Prefixes of labels and annotations that a job may set on its pods, beside keys without one.
METADATA_PREFIXES = [
    prefix.strip()
    for prefix in os.environ.get("METADATA_PREFIXES", "sim.muster.dev").split(",")
    if prefix.strip()
]

# Files that outlive a pod: the last MiB of each replica's log (scheduler/reconcile/logs).
LOG_STORE = Path(os.environ.get("LOG_STORE", VAR / "logs"))
# The what-if process (scheduler/whatif); pages say "no verdict now" after WHATIF_TIMEOUT_SECONDS.
WHATIF_URL = os.environ.get("WHATIF_URL", "http://127.0.0.1:8001").rstrip("/")
# Where it listens, "host:port", when that is not where it is asked: behind a Service.
WHATIF_LISTEN = os.environ.get("WHATIF_LISTEN", "")
WHATIF_TIMEOUT_SECONDS = 2.0
# Where the scheduler's worker serves its metrics ("127.0.0.1:9101"); empty: nowhere.
SCHEDULER_METRICS = os.environ.get("SCHEDULER_METRICS", "")
# The same for a cluster process.
CLUSTER_METRICS = os.environ.get("CLUSTER_METRICS", "")


def _mail(url: str) -> dict[str, Any]:
    """Django's settings for EMAIL_URL: smtp://user:password@host:587?tls=True (or ssl=True), file:///folder."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        backend = "django.core.mail.backends.filebased.EmailBackend"
        return {"EMAIL_BACKEND": backend, "EMAIL_FILE_PATH": parts.path}
    if parts.scheme != "smtp" or not parts.hostname:
        raise ImproperlyConfigured("EMAIL_URL must be smtp://host… or file:///folder")
    asked = {name: values[-1].lower() == "true" for name, values in parse_qs(parts.query).items()}
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or 25,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": asked.get("tls", False),
        "EMAIL_USE_SSL": asked.get("ssl", False),
    }


# Without EMAIL_URL no mail is written into the outbox. Mail and webhooks leave by the worker (tenants/services).
EMAIL_URL = os.environ.get("EMAIL_URL", "")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = os.environ.get("EMAIL_FROM", "muster@localhost")
if EMAIL_URL:
    globals().update(_mail(EMAIL_URL))
# Webhooks go to public addresses over HTTPS; these networks are allowed too, without TLS as well ("10.0.0.0/8,…").
WEBHOOK_NETWORKS = [
    part.strip() for part in os.environ.get("WEBHOOK_NETWORKS", "").split(",") if part.strip()
]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request": {"()": "controlplane.common.timing.RequestIdFilter"}},
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"}
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}
    },
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "INFO")},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        # It warns that a broker of files has no host.
        "kombu.connection": {"level": "ERROR"},
    },
}
