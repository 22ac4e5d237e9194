"""The exit statuses (docs/cli.md), without imports: Ctrl-C may need one before anything is loaded."""

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
NO_ACCESS = 4
INTERRUPTED = 130
