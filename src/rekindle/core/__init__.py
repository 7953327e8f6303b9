"""What every room may import: errors, files, downloads, programs, versions, redaction, the console."""
