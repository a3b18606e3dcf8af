"""Settings of the test session: the product's own, pointed at the session's database, broker and folder.

pytest-django reads them before any conftest, so the session is made here and its servers are started later,
by the first test that needs a database (tests/conftest.py).
"""

import os

from tests.services.session import current_session

_session = current_session()
os.environ["VAR"] = f"{_session.folder}/var"
os.environ["DATABASE_URL"] = _session.database_url
os.environ["CELERY_BROKER_URL"] = _session.broker_url
os.environ["TEST_SQLITE"] = f"{_session.folder}/test.sqlite3"
os.environ["SECRET_KEY"] = "tests sign with this and nothing else does"
os.environ["FIELD_KEY"] = "dGVzdHMgZW5jcnlwdCB3aXRoIHRoaXMgMzIgYnl0ZXM="

from controlplane.settings import *  # noqa: E402, F403  read after the environment is set

# Logging in is not what most tests are about: one round instead of a million.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
