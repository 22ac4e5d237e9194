"""`python -m launch <command>`: what `./run` starts in the finished environment."""

import sys

from launch.commands import main

sys.exit(main(sys.argv[1:]))
