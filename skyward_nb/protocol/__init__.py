"""Messages between the client, agents and ranks. No IO.

A `Command` goes down, an `Event` comes up; both are msgspec structs, cut into `frames` with a length in front.
`message_parts` has what several of them share, `answers` what agents return.

No message carries an untyped dictionary, and none is a pickle.
"""
