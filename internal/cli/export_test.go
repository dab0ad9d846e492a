package cli

// Version is that of this build.
func Version() string { return version() }
