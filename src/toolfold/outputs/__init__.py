"""Large results: kept in files, named by handles, and asked rather than read."""
