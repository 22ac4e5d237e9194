"""Errors of leases, nodes and the leadership of topics."""

from __future__ import annotations

from scalable.domain.errors.base import ScalableError


class LeaseLost(ScalableError):
    """The lease on {resource} with the token {token} was taken over."""

    code = "lease_lost"
    hint_template = "Stop; the present holder carries on."
    resource: str
    token: int


class TermSuperseded(ScalableError):
    """The leadership term {term} of {topic} was superseded by {current_term}."""

    code = "term_superseded"
    hint_template = "Look up the topic's leader again."
    topic: str
    term: int
    current_term: int


class NodeNotFound(ScalableError):
    """The node {node_id} does not exist."""

    code = "node_not_found"
    hint_template = "List the nodes; one that died is forgotten after a while."
    node_id: str


class NotLeader(ScalableError):
    """This node does not lead {topic}; {url} does."""

    code = "not_leader"
    hint_template = "Connect to {url}."
    topic: str
    url: str


class NoLeader(ScalableError):
    """Nobody leads {topic} at the moment."""

    code = "no_leader"
    hint_template = "Try again in a moment; leadership is taken on demand."
    topic: str
