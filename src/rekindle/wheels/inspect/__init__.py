"""What a wheel, library or installed package holds."""
