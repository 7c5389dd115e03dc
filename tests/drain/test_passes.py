"""What is written down of a drain between two passes, and that it is gone on with as it was."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway.drain.checkpoint import changed_in, pace_of, resumed
from leeway.drain.progress import Drain, PodProgress, Stage
from leeway.typed_json import adapter_of

START = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
UIDS = st.sampled_from("abcde")

moments = st.integers(-3_600_000, 3_600_000).map(lambda ms: START + timedelta(milliseconds=ms))
waiting: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"attempts": st.integers(0, 2000), "next_try_at": st.none() | moments}
)
changing: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"stage": st.sampled_from(Stage), "reason": st.text(max_size=5), "gone_at": st.none() | moments}
)


def pod(uid: str) -> PodProgress:
    return PodProgress(f"shop/{uid}", uid, "Deployment shop/web", Stage.PENDING, "to be evicted")


@st.composite
def passes(draw: st.DrawFn) -> list[Drain]:
    """A drain after each of some passes: pods come, wait, change, and none is ever forgotten."""
    drains = [Drain()]
    for _ in range(draw(st.integers(1, 5))):
        pods = dict(drains[-1].pods)
        for uid in draw(st.lists(UIDS, unique=True)):
            pods[uid] = replace(pods.get(uid, pod(uid)), **draw(waiting))
        for uid in draw(st.lists(UIDS, unique=True, max_size=2)):
            pods[uid] = replace(pods.get(uid, pod(uid)), **draw(changing))
        drains.append(Drain(listed=True, problem=draw(st.text(max_size=3)), pods=pods))
    return drains


@given(passes(), moments)
def test_what_is_written_down_of_each_pass_makes_up_the_whole_drain(
    drains: list[Drain], at: datetime
) -> None:
    known = drains[0]
    for after in drains[1:]:
        known = resumed(known, changed_in(known, after), pace_of(after, at))
        assert known == after
        assert list(known.pods) == list(after.pods), "in the order in which they were first seen"


def test_a_pod_that_only_waited_is_written_down_by_its_pace_alone() -> None:
    before = Drain(listed=True, pods={uid: pod(uid) for uid in "ab"})
    waited = replace(pod("a"), attempts=7, next_try_at=START + timedelta(seconds=4))
    went = replace(pod("b"), stage=Stage.GONE, gone_at=START)
    after = replace(before, pods={"a": waited, "b": went})
    assert changed_in(before, after).pods == {"b": went}
    pace = pace_of(after, START)
    assert adapter_of(type(pace)).dump_json(pace) == (
        b'{"at":"2026-11-20T09:45:00Z","tries":[7,0],"due":[4000,null]}'
    )


def test_no_pod_is_due_sooner_for_having_been_written_down() -> None:
    moment = START + timedelta(microseconds=1)
    after = Drain(pods={"a": replace(pod("a"), next_try_at=moment)})
    known = resumed(Drain(), changed_in(Drain(), after), pace_of(after, START)).pods["a"]
    assert known.next_try_at is not None
    assert moment <= known.next_try_at <= moment + timedelta(milliseconds=1)


def test_what_a_version_without_paces_wrote_is_the_whole_drain() -> None:
    told = Drain(listed=True, pods={"a": replace(pod("a"), attempts=3, next_try_at=START)})
    assert resumed(Drain(listed=True, pods={"a": pod("a")}), told, None) == told
