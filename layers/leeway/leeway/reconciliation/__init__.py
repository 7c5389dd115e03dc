"""Reconcile: finds lost events once a minute and does what they would have led to."""
