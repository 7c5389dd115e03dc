"""The report of a storm of notices: built from the sandbox's journals, evaluated and rendered."""
