"""The controllers, the scheduler and the kubelets: what makes the cluster live."""
