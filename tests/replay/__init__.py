"""Tests of the replay of load traces."""
