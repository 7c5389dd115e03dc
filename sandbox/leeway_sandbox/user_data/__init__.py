"""Reads user data as each AMI family does at boot, and refuses what that family refuses."""
