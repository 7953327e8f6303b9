"""Private toolkits and compilers without installers: assembled in Rekindle's own folder, nothing registered."""
