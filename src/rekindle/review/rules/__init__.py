"""What is judged about a trace. The words and the severity of every rule are rows of `builds/review.toml`."""
