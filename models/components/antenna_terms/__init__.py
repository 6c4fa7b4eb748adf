"""What no direction enters of an antenna: rotation of the feeds, leakage, gain (physics: section 6)."""
