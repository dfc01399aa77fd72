"""Large results: stored in files, named by handles, and queried instead of read whole."""
