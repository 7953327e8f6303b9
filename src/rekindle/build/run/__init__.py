"""One run of a build: steps, journal, lock, resume, fixes on the way."""
