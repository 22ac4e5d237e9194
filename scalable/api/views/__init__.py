"""The REST doors: each view parses, calls one service, answers."""
