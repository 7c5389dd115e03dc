"""Auto Scaling lifecycle hooks: heartbeats while Leeway works, and the answer at the end."""
