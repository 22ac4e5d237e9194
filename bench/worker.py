"""The product's Celery application with one more task, for the round trip that a split cannot do without."""

from tasks.app import app

app.conf.imports = [*app.conf.imports, "bench.no_op"]
