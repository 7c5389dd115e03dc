"""The retirement of one instance, from its record to the last eviction.

The steps: `retire_node` runs `cordon`, `replace` (with `group_successors`, `pool_successors`),
`drain` (with `executor`) and `finish`, in a `context`, and `outcome` reports.
The decisions: `attempts`, `disruption_budget`, `decide_replacement`, `pods`, `progress`, `plan`.
"""
