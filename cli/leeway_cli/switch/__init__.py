"""`leeway switch`: hands the nodes of a cluster from Karpenter to Leeway, and back."""
