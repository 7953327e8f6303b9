"""A folder of verified wheels that is a package index too."""
