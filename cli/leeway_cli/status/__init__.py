"""`leeway status`: shows retirements, admissions and headroom."""
