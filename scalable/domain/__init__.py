"""The rules of scalable topics as pure values and functions: no I/O, no clock, no randomness."""
