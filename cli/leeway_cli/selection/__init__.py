"""`leeway types|select`: shows instance types and what would be launched for pods."""
