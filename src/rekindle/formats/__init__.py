"""What is inside a file, on any OS, without running it: readers without opinions."""
