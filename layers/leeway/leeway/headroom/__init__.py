"""Headroom: how much spare capacity a cluster keeps, from cron windows and its own size. Pure."""
