"""Lambda for the sandbox: functions run as processes; durable executions are supported."""
