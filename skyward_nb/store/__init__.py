"""Values as bytes under their digest: on this machine, on another one, on several."""
