"""The real processes that tests start (see `launch/sandbox.py`)."""

from launch.sandbox import LiveNode, ProcessFactory, Sandbox, token

__all__ = ["LiveNode", "ProcessFactory", "Sandbox", "token"]
