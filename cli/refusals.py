"""What `kubectl drain` has against draining a node, and what it warns of, in its words."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leeway.drain.decide_pod import PodDecision, Refusal

_REFUSED = {
    "--ignore-daemonsets": "cannot delete DaemonSet-managed Pods (use {} to ignore)",
    "--delete-emptydir-data": "cannot delete Pods with local storage (use {} to override)",
    "--force": "cannot delete Pods that declare no controller (use {} to override)",
}
_WARNED = {
    "--ignore-daemonsets": "ignoring DaemonSet-managed Pods",
    "--delete-emptydir-data": "deleting Pods with local storage",
    "--force": "deleting Pods that declare no controller",
}


def refusal(decisions: "Sequence[PodDecision]", allowed: Collection[str]) -> str:
    """Say what is refused, naming every pod once, with the first flag that it lacks; else empty."""
    firsts = [(_first(d.refusals, allowed), d.pod.key) for d in decisions]
    return "; ".join(
        f"{words.format(flag)}: {', '.join(sorted(p for first, p in firsts if first == flag))}"
        for flag, words in _REFUSED.items()
        if any(first == flag for first, _ in firsts)
    )


def warnings(decisions: "Sequence[PodDecision]") -> str:
    """Say what is done although it was refused without a flag; empty where there is nothing."""
    return "; ".join(
        f"{words}: {', '.join(sorted(pods))}"
        for flag, words in _WARNED.items()
        if (pods := list(_concerned(decisions, flag)))
    )


def _first(refusals: "tuple[Refusal, ...]", allowed: Collection[str]) -> str:
    return next((one.value for one in refusals if one.value not in allowed), "")


def _concerned(decisions: "Sequence[PodDecision]", flag: str) -> Iterator[str]:
    # kubectl warns of a pod for one thing only: the last.
    return (d.pod.key for d in decisions if d.refusals and d.refusals[-1].value == flag)
