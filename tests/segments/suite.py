"""What every data plane port promises; each adapter runs all of it (`test_memory.py`, `test_embedded.py`)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.segments.port import SegmentPort
from tests.segments.lineage import check_history
from tests.segments.promises_of_claims import ClaimSuite
from tests.segments.promises_of_cursors import CursorSuite
from tests.segments.promises_of_duplicates import DuplicateSuite
from tests.segments.promises_of_messages import AppendSuite
from tests.segments.promises_of_stores import StoreSuite


class LineageSuite:
    """A producer that sends again, across splits and merges."""

    histories = 40

    def test_whatever_is_sent_again_is_stored_exactly_once_and_in_order(self, port: SegmentPort) -> None:
        @settings(max_examples=self.histories, deadline=None, derandomize=True)
        @given(st.data())
        def history(data: st.DataObject) -> None:
            check_history(port, data)

        history()


class SegmentSuite(StoreSuite, AppendSuite, DuplicateSuite, CursorSuite, ClaimSuite, LineageSuite):
    """All promises; an adapter's test class inherits it and gives the fixture `port`."""
