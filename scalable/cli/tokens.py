"""Service tokens (superusers only)."""

COMMANDS = ()
