"""Pods and pools in, a plan out. The files in the order in which a plan is made:

- `planning`: drafts of a plan, and the best of them; `run`: one run over some pods.
- `pod_groups`: equal pods as one group, their preferences, and the pods that must share a node.
- `topology`: counters of pods for spreads, affinities and host ports; `zones`: the zones of pods;
  `label_domains`: the values of other labels of nodes.
- `existing_nodes`, `binding`: pods that go to nodes that exist.
- `variants`: pools by the values of their own labels; `supply`, `pod_classes`, `new_nodes`:
  offerings, and the pods that go to new nodes of them.
- `unmet_terms`: pods whose terms do not hold in the plan as it ends.
- `requests`: the launch request of each new node; `unschedulable`: why a pod has no node.
- `plan`: the result.
"""
