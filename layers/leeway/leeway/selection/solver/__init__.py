"""The arithmetic of packing, on arrays alone: groups of pods and offerings → patterns of nodes.

`problem` is the input, and fills nodes. `solving` packs greedily and chooses the algorithm:
`programs` for many equal pods, `one_by_one` for up to 2,000 pods and for pods without constraints,
which starts from `whole_nodes`. `few_nodes` holds some dozens of nodes.
"""
