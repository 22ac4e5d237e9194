"""A vector of positions knows under which ownership each was received, however it is kept."""

import copy
import pickle

from scalable.client.consumer import Positions

OLD_ROWS = [(0, 1, 10), (1, 1, 20)]
OLD = Positions(OLD_ROWS)
NEW = Positions([(1, 2, 21), (2, 1, 5)])


def test_a_vector_that_takes_another_has_its_ownerships() -> None:
    updated, joined = Positions(OLD_ROWS), Positions(OLD_ROWS)
    updated.update(NEW)
    joined |= NEW
    for kept in (updated, joined):
        assert kept == {0: 10, 1: 21, 2: 5}
        assert kept.generations == {0: 1, 1: 2, 2: 1}


def test_what_is_set_by_hand_counts_for_every_ownership() -> None:
    kept = Positions(OLD_ROWS)
    kept[0] = 11
    kept.update({1: 22})
    assert kept == {0: 11, 1: 22}
    assert kept.generations == {}


def test_a_copy_leaves_the_original_as_it_is() -> None:
    kept = Positions(OLD_ROWS)
    for made in (copy.copy(kept), copy.deepcopy(kept)):
        assert made == kept
        assert made.generations == OLD.generations
        made[0] = 11
    kept |= kept
    assert kept.generations == OLD.generations
    assert kept == OLD


def test_a_pickle_keeps_the_ownerships() -> None:
    read = pickle.loads(pickle.dumps(OLD))
    assert read == OLD
    assert read.generations == OLD.generations
