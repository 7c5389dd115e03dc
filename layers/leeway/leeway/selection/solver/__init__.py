"""The arithmetic of packing, on arrays alone: groups of pods and offerings → patterns of nodes."""
