"""What a person is told: how runs ended, which pools there are, what they cost, what is wrong."""
