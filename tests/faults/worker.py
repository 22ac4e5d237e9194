"""A Celery worker whose drivers strike themselves where an operation says so: see `tests.faults.jobs`."""

from tasks.app import app

app.conf.imports = ["tests.faults.jobs"]
