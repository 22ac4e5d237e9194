"""`python -m launch <command>`: what `./run` starts in the finished environment."""

import signal
import sys

# Nothing runs yet: Ctrl-C just ends this process. Raised amid an import it would show a traceback of it, and
# where an import takes every exception for its own failure, it would be lost. `./run` holds it till here.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

from launch.commands import main  # noqa: E402  (after the signal)

sys.exit(main(sys.argv[1:]))
