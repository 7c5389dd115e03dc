"""One new node's way in: joined, Ready, its launch hook answered."""
