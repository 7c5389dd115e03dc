"""The retirement of one instance: its record, its attempts and the disruption budget."""
