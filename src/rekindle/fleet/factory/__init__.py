"""A wheel factory anyone can press: a template repository whose runners build a matrix, sign it and publish it."""
