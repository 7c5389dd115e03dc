"""The durable function retire_node: cordon, replace, drain, finish, report."""
