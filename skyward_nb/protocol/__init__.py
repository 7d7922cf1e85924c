"""Messages between the client, agents and ranks. No IO.

A `Command` goes down, an `Event` comes up; both are msgspec structs, cut into `frames` with a length in front.
`message_parts` has what several of them share.

No message carries an untyped dictionary. A value of the user is `Packed`: bytes that client and ranks alone unpickle.
"""
