"""How far a build is and how long the rest takes."""
