"""Headroom: the spare capacity of a cluster, sized by cron windows and by the cluster's size."""
