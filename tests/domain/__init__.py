"""Tests of the rules alone: no database, no clock, no socket."""
