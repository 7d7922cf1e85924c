"""What a person asks for: options, arguments and defaults, made a spec."""
