"""What users allow Leeway to do about each kind of notice, and the defaults."""
