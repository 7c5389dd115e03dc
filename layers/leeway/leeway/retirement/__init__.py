"""One instance's way out: its turn, cordon, successor, drain, finish, report."""
