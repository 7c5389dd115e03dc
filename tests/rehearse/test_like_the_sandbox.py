"""A rehearsal and a real run of the same storm agree to the pod."""

from pathlib import Path

from bench.rehearsals import compare

SEEDS = (3, 7, 11, 19)


def test_random_clusters_fare_as_rehearsed(tmp_path: Path) -> None:
    found = compare(SEEDS, tmp_path)

    assert found.pods > 10
    assert found.defects == []
