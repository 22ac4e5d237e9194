"""Fixtures of the REST tests.

The modules behind them want Django set up, which it is not yet when this file is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.rest import Orders, Rest


@pytest.fixture
def rest(db: None) -> Rest:
    """Calls as the superuser."""
    from tests.api.rest import Rest

    return Rest()


@pytest.fixture
def orders(rest: Rest) -> Orders:
    """The topic `orders` with a segment in each state."""
    from tests.api.rest import make_orders

    return make_orders(rest)
