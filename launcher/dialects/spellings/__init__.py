"""Tables of what frameworks call things, by version. Not: any code that acts on them."""
