"""Which instances to launch for pods: requirements, offers, packing, ranking. No I/O.

`reading` makes pods and nodes of Kubernetes objects, `offers` says what EC2 has, `packing` gives
every pod a place, and `solver` is its arithmetic; the modules beside them are what all four speak
of.
"""
