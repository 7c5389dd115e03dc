"""`leeway schedule`: shows the replicas of cron windows."""
