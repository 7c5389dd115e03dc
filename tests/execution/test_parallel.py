"""Work in threads."""

import pytest
from leeway.parallel import in_parallel


@pytest.mark.parametrize("count", [1, 2, 20])
def test_an_item_that_fails_stops_no_other_item(count: int) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number in (0, 3):
            raise ValueError(f"item {number}")
        done.append(number)

    with pytest.raises(ValueError, match="item 0"):
        in_parallel(work, range(count), 2)
    assert sorted(done) == [one for one in range(count) if one not in (0, 3)]


def test_results_have_the_order_of_the_items() -> None:
    assert in_parallel(str, range(20), 4) == [str(one) for one in range(20)]
