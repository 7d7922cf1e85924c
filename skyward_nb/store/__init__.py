"""Values as bytes under their digest: on this machine, on another one, on several.

No value is read whose bytes do not match its digest; none crosses the user's line twice. No mapped value holds a
descriptor. No result stays in a store after it is fetched.
"""
