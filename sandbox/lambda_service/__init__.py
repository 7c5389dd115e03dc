"""Lambda for the sandbox: functions run as real processes, durable executions included."""
