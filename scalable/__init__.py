"""Scalable topics: streams of keyed messages whose segments split and merge while they run."""
