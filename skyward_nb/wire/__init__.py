"""How bytes travel: frames on a stream, values as payload, payload in a machine's store."""
