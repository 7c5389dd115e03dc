"""The checkpoint of a drain between two passes restores the whole drain."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway.reasons import Reason
from leeway.retirement.drain import changed_pods, restored, retry_schedule
from leeway.retirement.progress import Drain, PodProgress, Stage
from leeway.retirement.reasons import POD_TO_EVICT
from leeway.typed_json import dumps

START = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
UIDS = st.sampled_from("abcde")

moments = st.integers(-3_600_000, 3_600_000).map(lambda ms: START + timedelta(milliseconds=ms))
waiting: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"attempts": st.integers(0, 2000), "next_try_at": st.none() | moments}
)
changing: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "stage": st.sampled_from(Stage),
        "reason": st.builds(Reason, st.text(max_size=3), st.text(max_size=5)),
        "gone_at": st.none() | moments,
    }
)


def pod(uid: str) -> PodProgress:
    return PodProgress(
        f"shop/{uid}",
        uid,
        "Deployment shop/web",
        Stage.PENDING,
        POD_TO_EVICT("Then it runs on another node."),
    )


@st.composite
def passes(draw: st.DrawFn) -> list[Drain]:
    """Draw a drain after each of some passes: pods appear, wait and change, and none is removed."""
    drains = [Drain()]
    for _ in range(draw(st.integers(1, 5))):
        pods = dict(drains[-1].pods)
        for uid in draw(st.lists(UIDS, unique=True)):
            pods[uid] = replace(pods.get(uid, pod(uid)), **draw(waiting))
        for uid in draw(st.lists(UIDS, unique=True, max_size=2)):
            pods[uid] = replace(pods.get(uid, pod(uid)), **draw(changing))
        drains.append(
            Drain(
                listed=True,
                problem=draw(st.none() | st.builds(Reason, st.text(), st.text())),
                pods=pods,
            )
        )
    return drains


@given(passes(), moments)
def test_the_checkpoints_of_all_passes_restore_the_whole_drain(
    drains: list[Drain], at: datetime
) -> None:
    known = drains[0]
    for after in drains[1:]:
        checkpoint = changed_pods(known, after)
        known = restored(known, checkpoint, retry_schedule(after, at))
        assert known == after
        assert list(known.pods) == list(after.pods), "in the order in which they were first seen"


def test_a_pod_that_only_waited_is_stored_as_its_retry_time_alone() -> None:
    before = Drain(listed=True, pods={uid: pod(uid) for uid in "ab"})
    waited = replace(pod("a"), attempts=7, next_try_at=START + timedelta(seconds=4))
    went = replace(pod("b"), stage=Stage.GONE, gone_at=START)
    after = replace(before, pods={"a": waited, "b": went})
    assert changed_pods(before, after).pods == {"b": went}
    schedule = retry_schedule(after, START)
    assert dumps(schedule) == (b'{"at":"2026-11-20T09:45:00Z","tries":[7,0],"due":[4000,null]}')


def test_a_checkpoint_makes_no_retry_earlier() -> None:
    moment = START + timedelta(microseconds=1)
    after = Drain(pods={"a": replace(pod("a"), next_try_at=moment)})
    known = restored(Drain(), changed_pods(Drain(), after), retry_schedule(after, START)).pods["a"]
    assert known.next_try_at is not None
    assert moment <= known.next_try_at <= moment + timedelta(milliseconds=1)
