"""PostgreSQL and Valkey from wheels, as children in the foreground, for machines that have neither."""

from launch.embedded.postgres import embedded_postgres, postgres_url, remove_postgres
from launch.embedded.service import EmbeddedService
from launch.embedded.valkey import embedded_valkey, valkey_url

__all__ = [
    "EmbeddedService",
    "embedded_postgres",
    "embedded_valkey",
    "postgres_url",
    "remove_postgres",
    "valkey_url",
]
