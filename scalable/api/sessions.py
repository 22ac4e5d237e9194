"""Where sessions of the dashboard are kept: in the database, by keys such as are made here."""

import re

from django.contrib.sessions.backends import db

_KEY = re.compile("[a-z0-9]{32}")


class SessionStore(db.SessionStore):
    """Django's, which hands whatever a cookie holds to the database; the class's name salts what is kept."""

    def _validate_session_key(self, key: object) -> bool:
        """Take a key that can be one; any other is none, as one that is not known."""
        return isinstance(key, str) and _KEY.fullmatch(key) is not None
