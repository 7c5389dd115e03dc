"""An embedded AWS: moto behind one HTTP port, and what moto lacks in modules that say so."""
