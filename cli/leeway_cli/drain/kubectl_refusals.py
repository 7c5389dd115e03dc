"""The refusals and warnings of `kubectl drain`, with its texts."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leeway.retirement.pods import PodDecision, Refusal

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
    """Return the refusal of a drain, empty if there is none. It lists each pod once, with the first
    flag that the pod needs."""
    firsts = [(_first_missing_flag(d.refusals, allowed), d.pod.key) for d in decisions]
    return "; ".join(
        f"{words.format(flag)}: {', '.join(sorted(p for first, p in firsts if first == flag))}"
        for flag, words in _REFUSED.items()
        if any(first == flag for first, _ in firsts)
    )


def warnings(decisions: "Sequence[PodDecision]") -> str:
    """Return the warnings about pods that only a flag allows, empty if there are none."""
    return "; ".join(
        f"{words}: {', '.join(sorted(pods))}"
        for flag, words in _WARNED.items()
        if (pods := list(_pods_with_warning(decisions, flag)))
    )


def _first_missing_flag(refusals: "tuple[Refusal, ...]", allowed: Collection[str]) -> str:
    return next((one.value for one in refusals if one.value not in allowed), "")


def _pods_with_warning(decisions: "Sequence[PodDecision]", flag: str) -> Iterator[str]:
    # kubectl prints only the last warning of a pod.
    return (d.pod.key for d in decisions if d.refusals and d.refusals[-1].value == flag)
