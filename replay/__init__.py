"""Replay of load against scaling rules, on a virtual clock; of the product it sees only the domain."""
