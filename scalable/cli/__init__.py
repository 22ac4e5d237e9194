"""The command line `scalable-topics`: everything that the client can do, by hand and by scripts."""
