"""An embedded AWS: moto behind one HTTP port, and modules for the behaviour that moto lacks."""
