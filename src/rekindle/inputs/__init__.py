"""What people write, read into values: one reader for each kind of thing, used by every verb and every file."""
