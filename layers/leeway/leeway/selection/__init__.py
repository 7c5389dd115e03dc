"""Selects the instances to launch for pods: requirements, offers, packing, ranking. No I/O.

`reading` converts Kubernetes objects to pods and nodes, `offers` describes what EC2 offers,
`packing` assigns pods to nodes, and `solver` has its algorithms on arrays. `pods`, `requirements`,
`resources` and `labels` define the values that these share.
"""
