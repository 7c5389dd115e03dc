"""The rights that the doctor asks for are those of rbac/leeway.yaml, and of users' namespaces."""

from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.doctor.rights import Right, rights_in_namespaces, rights_of

OBJECTS = [one.body for one in read_objects(RBAC)]


def test_each_group_is_asked_for_what_its_roles_grant() -> None:
    rights = rights_of(OBJECTS)
    assert {one.group.removeprefix("leeway:") for one in rights} == {
        "drain",
        "capacity",
        "watch",
        "provision",
        "headroom",
    }
    evict = Right("leeway:drain", "create", "", "pods/eviction", role="leeway-drain")
    assert evict in rights
    own = {one.namespace for one in rights if one.role == "leeway-headroom-buffer"}
    assert own == {"leeway-headroom"}
    assert len(set(rights)) == len(rights)


def test_namespaces_of_users_need_the_role_that_they_bind() -> None:
    role = "leeway-headroom-target"
    rights = rights_in_namespaces(OBJECTS, [(role, "shop"), (role, "shop"), ("other", "x")])
    assert {(one.verb, one.resource) for one in rights} == {
        (verb, f"{kind}/scale")
        for verb in ("get", "patch")
        for kind in ("deployments", "statefulsets")
    }
    assert {(one.group, one.namespace) for one in rights} == {("leeway:headroom", "shop")}
    surging = rights_in_namespaces(OBJECTS, [("leeway-surge", "shop")])
    assert {one.group for one in surging} == {"leeway:drain", "leeway:capacity"}
    assert {one.resource for one in surging} >= {"deployments/scale", "endpointslices"}
