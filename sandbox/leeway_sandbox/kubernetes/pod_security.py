"""PodSecurity admission: the levels that the label of a namespace enforces on its pods.

Rules: Kubernetes' Pod Security Standards. `restricted` is checked for what a container must set.
Of `baseline`, which `restricted` includes, the namespaces, devices and ports of the host and
privileged containers are checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.objects import Object, labels_of
from leeway_sandbox.kubernetes.store import Store

_ENFORCE = "pod-security.kubernetes.io/enforce"
_LEVELS = ("baseline", "restricted")


def refusal(store: Store, namespace: str, spec: Object) -> str | None:
    """Return why PodSecurity refuses a pod in a namespace; None if it accepts the pod."""
    labels = labels_of(store.get(registry.NAMESPACE, "", namespace) or {"metadata": {}})
    level = labels.get(_ENFORCE)
    if level not in _LEVELS:
        return None
    problems = list(_baseline(spec))
    if level == "restricted":
        problems += _restricted(spec)
    if not problems:
        return None
    version = labels.get(f"{_ENFORCE}-version", "latest")
    return f'violates PodSecurity "{level}:{version}": {", ".join(problems)}'


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _names(containers: list[Object]) -> str:
    plural = "s" if len(containers) > 1 else ""
    return f"container{plural} " + ", ".join(f'"{one["name"]}"' for one in containers)


def _of(container: Object) -> Object:
    context: Object = container.get("securityContext") or {}
    return context


def _baseline(spec: Object) -> Iterator[str]:
    host = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if host:
        yield f"host namespaces ({', '.join(f'{name}=true' for name in host)})"
    if paths := [one["name"] for one in spec.get("volumes") or () if one.get("hostPath")]:
        plural = "s" if len(paths) > 1 else ""
        yield f"hostPath volumes (volume{plural} {', '.join(f'"{name}"' for name in paths)})"
    containers = _containers(spec)
    if ports := [one for one in containers if any(p.get("hostPort") for p in one.get("ports", ()))]:
        numbers = [str(p["hostPort"]) for one in ports for p in one["ports"] if p.get("hostPort")]
        plural = "s" if len(numbers) > 1 else ""
        yield f"hostPort ({_names(ports)} uses hostPort{plural} {', '.join(numbers)})"
    if privileged := [one for one in containers if _of(one).get("privileged")]:
        must = "must not set securityContext.privileged=true"
        yield f"privileged ({_names(privileged)} {must})"


def _restricted(spec: Object) -> Iterator[str]:
    containers, pod = _containers(spec), spec.get("securityContext") or {}
    if some := [one for one in containers if _of(one).get("allowPrivilegeEscalation") is not False]:
        must = "must set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_names(some)} {must})"
    if some := [one for one in containers if "ALL" not in _dropped(one)]:
        must = 'must set securityContext.capabilities.drop=["ALL"]'
        yield f"unrestricted capabilities ({_names(some)} {must})"
    if some := [one for one in containers if not {**pod, **_of(one)}.get("runAsNonRoot")]:
        must = "must set securityContext.runAsNonRoot=true"
        yield f"runAsNonRoot != true (pod or {_names(some)} {must})"
    if some := [one for one in containers if not _has_profile({**pod, **_of(one)})]:
        must = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_names(some)} {must})"


def _dropped(container: Object) -> list[str]:
    dropped: list[str] = (_of(container).get("capabilities") or {}).get("drop") or []
    return dropped


def _has_profile(context: Object) -> bool:
    kind = (context.get("seccompProfile") or {}).get("type")
    return kind in ("RuntimeDefault", "Localhost")
