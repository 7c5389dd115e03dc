"""Pauses of node pools: a pool whose nodes never join launches no more of them."""
