"""`leeway doctor`: what keeps Leeway from doing its work, and the commands that mend it."""
