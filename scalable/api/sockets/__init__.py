"""The WebSocket doors."""
