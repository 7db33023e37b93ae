"""What the front ends share: a conversation with an engine and a store, without a screen."""
