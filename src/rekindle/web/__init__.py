"""Pages made from values: the build report, the site, the server. Nothing below imports this room."""
